"""What happened to one sample, for ``stepe explain``."""

from dataclasses import dataclass
from typing import Any

from stepe.errors import InputError
from stepe.run.folder import RunFolder


@dataclass(frozen=True)
class Explanation:
    """The history of a sample, and what the model makes of it."""

    sample: dict[str, Any]
    """its row of samples.parquet"""
    entries: list[dict[str, Any]]
    """loss, prediction and whether it was dropped, an entry an epoch; the last comes from the finished model"""

    @property
    def spans(self) -> list[tuple[bool, int, int]]:
        """Epochs in a row in which it was dropped, or kept: (dropped, first, last)."""
        spans: list[tuple[bool, int, int]] = []
        for entry in self.entries[:-1]:
            if spans and spans[-1][0] == entry["dropped"]:
                spans[-1] = (spans[-1][0], spans[-1][1], entry["epoch"])
            else:
                spans.append((entry["dropped"], entry["epoch"], entry["epoch"]))
        return spans

    @property
    def readmissions(self) -> list[int]:
        """Epochs in which the sample came back."""
        return [first for dropped, first, _ in self.spans[1:] if not dropped]


def explain_sample(run: RunFolder, sample_id: str) -> Explanation:
    """Find out what happened to a sample, by its id."""
    found = run.samples[run.samples["id"] == sample_id]
    if found.empty:
        some = ", ".join(run.samples["id"].head(3))
        raise InputError(f"{run.path} has no sample with the id {sample_id!r}; ids look like {some}")
    # Ids of different splits may coincide; the training sample is the one that has a history.
    index = int(found.index[0])
    sample = {str(key): value for key, value in found.iloc[0].to_dict().items()}
    return Explanation(sample, run.trace(index) if sample["split"] == "train" else [])
