"""The run that people hold: its folder, with a model to predict by and a report to write."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepe.run.folder import RunFolder

if TYPE_CHECKING:
    import pandas as pd


class Run(RunFolder):
    """A run on disk: ``Run("runs/digits-1").issues``."""

    def predict(self, data: Any, device: str = "auto") -> "pd.DataFrame":
        """What the model says about further data of the same form: id, predicted_label and confidence, a row each."""
        from stepe.app.predict import predict

        return predict(self, data, device=device)

    def report(self) -> Path:
        """Build ``report.html`` anew; returns its path."""
        from stepe.report.html import write_report

        return write_report(self)
