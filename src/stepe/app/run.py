"""The run that people hold: its folder, with a model to predict by and a report to write."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepe.run.folder import RunFolder

if TYPE_CHECKING:
    import pandas as pd

    from stepe.run.paths import Trust


class Run(RunFolder):
    """A run on disk: ``Run("runs/digits-1").issues``."""

    def predict(self, data: Any, device: str = "auto", *, trust_paths: "Trust" = False) -> "pd.DataFrame":
        """Predict further data of the same form: id, predicted_label and confidence, a row each.

        With ``trust_paths``, a network is read wherever the run folder says that it lies, though somebody else made it.
        """
        from stepe.app.predict import predict

        return predict(self, data, device=device, trust_paths=trust_paths)

    def report(self) -> Path:
        """Build ``report.html`` anew; returns its path."""
        from stepe.report.html import write_report

        return write_report(self)
