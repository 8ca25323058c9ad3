"""Losses that a training loop reports as it goes, in place of a probe: in a stream no sample can be asked for."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from stepe.loop.ledger import Ledger, Observation
from stepe.loop.processes import Ranks


class TrainingLosses:
    """Keeps what the batches of an epoch told of their samples, by sample index."""

    def __init__(self) -> None:
        self._index: list[Tensor] = []
        self._columns: list[dict[str, Tensor]] = []

    def add(self, losses: Tensor, index: Tensor, read: dict[str, Tensor]) -> None:
        """Take a batch in, and what its outputs tell; it stays on its device until the epoch is over."""
        columns = {"loss": losses.detach().float(), **read}
        self._index.append(index.detach())
        self._columns.append(columns)

    def empty(self) -> bool:
        """Say whether no batch came."""
        return not self._index

    def observation(self, ledger: Ledger) -> Observation:
        """Put together what all ranks were told; a sample that did not come is as it was."""
        known = {
            "loss": "loss",
            "prediction": "prediction",
            "confidence": "confidence",
            "margin": "margin",
            "given_probability": "trust",
            "probability": "guess",
            "output": "output",
        }
        names = [name for name in known if all(name in columns for columns in self._columns)]
        index = torch.cat(self._index).cpu()
        told = [torch.cat([columns[name] for columns in self._columns]).cpu() for name in names]
        index, *told = Ranks.current().gather_any(index, *told)
        # Of a sample that came twice, the later time counts, and scattering promises no order.
        last = torch.full((ledger.n,), -1)
        last.scatter_reduce_(0, index, torch.arange(len(index)), "amax")
        came = last >= 0
        whole = {}
        for name, values in zip(names, told, strict=True):
            column = ledger[known[name]].to(values.dtype, copy=True)
            column[came] = values[last[came]]
            whole[name] = column
        self._index, self._columns = [], []
        return replace(Observation(whole.pop("loss")), **whole)  # type: ignore[arg-type]

    def state_dict(self) -> dict[str, Any]:
        """Return what came since the last observation, on this rank."""
        return {"index": list(self._index), "columns": [dict(columns) for columns in self._columns]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take it up."""
        self._index, self._columns = list(state["index"]), [dict(columns) for columns in state["columns"]]
