"""What is remembered per sample, by sample index. Arrays of length n, saved and restored exactly."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from stepe.errors import RunError

TRUST_MEMORY = 0.9

JudgedBy = Literal["itself", "cleared", "others"]
"""who judged the samples. ``itself``: the model in training, which may know its labels by heart. ``cleared``: the same,
after it was seen not to. ``others``: models that trained on none of the samples that they judge.
"""


@dataclass(frozen=True)
class Observation:
    """What one probe saw, one entry per sample, in the order of the sample indices."""

    loss: Tensor
    prediction: Tensor | None = None
    """the most likely class"""
    confidence: Tensor | None = None
    """the probability of that class"""
    given_probability: Tensor | None = None
    """the probability of the given label"""
    margin: Tensor | None = None
    """logit of the given label minus the largest other logit: negative where the model disagrees"""
    probability: Tensor | None = None
    """n x classes, where a method asks for it"""
    output: Tensor | None = None
    """the predicted number, or row of numbers, where labels are numbers"""
    judged_by: JudgedBy = "itself"


@dataclass(frozen=True)
class Turnover:
    """How the kept set changed from one epoch to the next."""

    came: int
    """dropped before, kept now"""
    went: int
    """kept before, dropped now"""


@dataclass
class Ledger:
    """Per-sample memory of a run.

    A method may declare further columns with :meth:`add_column`; whatever is in ``columns`` is saved.
    """

    n: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    columns: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.add_column("loss", torch.float32, float("nan"))
        self.add_column("score", torch.float32, float("nan"))
        self.add_column("margin", torch.float32, float("nan"))
        self.add_column("prediction", torch.int64, -1)
        self.add_column("confidence", torch.float32, float("nan"))
        self.add_column("trust", torch.float32, float("nan"))
        self.add_column("dropped", torch.bool, False)
        self.add_column("trusted", torch.bool, False)
        self.add_column("drop_count", torch.int32, 0)
        self.add_column("times_probed", torch.int32, 0)
        self.add_column("times_contradicted", torch.int32, 0)

    def add_column(
        self,
        name: str,
        dtype: torch.dtype,
        fill: float,
        *,
        width: int | None = None,
        device: torch.device | None = None,
    ) -> Tensor:
        """Declare a column of n entries (or n rows of ``width``); an existing one is left as it is.

        One that training steps read and write lives on their ``device``.
        """
        if name not in self.columns:
            shape = (self.n,) if width is None else (self.n, width)
            self.columns[name] = torch.full(shape, fill, dtype=dtype, device=device or self.device)
        return self.columns[name]

    def __getitem__(self, name: str) -> Tensor:
        return self.columns[name]

    def __setitem__(self, name: str, values: Tensor) -> None:
        column = self.columns[name]
        column.copy_(values.reshape(column.shape).to(column.dtype))

    def record_probe(self, seen: Observation, *, memory: float = 0.0, trust_memory: float = TRUST_MEMORY) -> None:
        """Write down a probe.

        ``memory`` smooths the score over probes, ``score <- memory * score + (1 - memory) * loss``, so that only
        persistently high losses count (the paper's abstract). A score that is not finite starts anew with the next
        finite loss: one overflow must not mark a sample for ever. ``trust_memory`` does the same for the probability
        of the given label and the guess.
        """
        self["loss"] = seen.loss
        loss, old = self["loss"], self["score"]
        smoothed = memory * old + (1 - memory) * loss if memory else loss
        self["score"] = torch.where(torch.isfinite(old) & torch.isfinite(loss), smoothed, loss)
        self.columns["times_probed"] += 1
        for name in ("prediction", "confidence", "margin", "output"):
            values = getattr(seen, name)
            if values is not None and name in self.columns:
                self[name] = values
        if seen.margin is not None:
            self.columns["times_contradicted"] += self["margin"] < 0
        if seen.given_probability is not None:
            self.remember("trust", seen.given_probability, trust_memory)
        if "guess" in self.columns and seen.probability is not None:
            self.remember("guess", seen.probability, trust_memory)

    def remember(self, name: str, new: Tensor, memory: float) -> None:
        """Keep a running mean, started by the first probe: a single late one goes stale as labels are memorised."""
        old = self[name].float()
        new = new.to(old.device)
        self[name] = torch.where(torch.isfinite(old), memory * old + (1 - memory) * new, new)

    def record_selection(self, kept: Tensor) -> Turnover:
        """Write down which samples this epoch drops, and say how many came and went."""
        before, now = self["dropped"].clone(), ~kept.to(self.device)
        self["dropped"] = now
        self.columns["drop_count"] += now
        return Turnover(came=int(torch.count_nonzero(before & ~now)), went=int(torch.count_nonzero(now & ~before)))

    def state_dict(self) -> dict[str, Tensor]:
        """Return every column."""
        return dict(self.columns)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore every column; the columns must be the ones this run declared."""
        if state.keys() != self.columns.keys():
            raise RunError(
                f"the saved ledger has the columns {sorted(state)}, this run needs {sorted(self.columns)}: "
                "it was written by another version or method"
            )
        for name, values in state.items():
            column = self.columns[name]
            if values.shape != column.shape or values.dtype != column.dtype:
                raise RunError(
                    f"the saved ledger's column {name!r} is {values.dtype} of shape {tuple(values.shape)}, "
                    f"this run's {column.dtype} of shape {tuple(column.shape)}: the data or the method changed"
                )
        for name, values in state.items():
            self[name] = values


def read_rows(column: Tensor, index: Tensor) -> Tensor:
    """Read the rows of some samples, to where their indices are."""
    return column[index.to(column.device)].to(index.device)


def write_rows(column: Tensor, index: Tensor, rows: Tensor) -> None:
    """Overwrite the rows of some samples. Works inside a CUDA graph, in deterministic mode too."""
    with torch.no_grad():
        rows = rows.detach().to(column)
        # An assignment; spelt out, because in deterministic mode the plain one has the host check the indices.
        torch._index_put_impl_(column, (index.to(column.device),), rows, accumulate=False, unsafe=True)
