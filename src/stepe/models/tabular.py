"""An MLP for tables: an embedding for each categorical column beside the numbers; dropout, no BatchNorm."""

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from stepe.models.mlp import MLP

WIDEST = 16


class CodeEmbeddings(nn.ModuleList):
    """Replaces the codes of categories, which stand in the last columns of a row, by their embeddings."""

    def __init__(self, numbers: int, codes: Sequence[int]):
        widths = [min(WIDEST, (count + 1) // 2) for count in codes]
        super().__init__(nn.Embedding(count, width) for count, width in zip(codes, widths, strict=True))
        self.numbers, self.width = numbers, numbers + sum(widths)

    def forward(self, x: Tensor) -> Tensor:
        """Return rows of numbers alone."""
        codes = x[:, self.numbers :].long()
        return torch.cat([x[:, : self.numbers], *(embed(codes[:, i]) for i, embed in enumerate(self))], dim=1)


class Tabular(nn.Sequential):
    """Gives logits of rows of numbers and codes; a sequence, so that several can train as one stack."""

    def __init__(
        self,
        numbers: int,
        codes: Sequence[int],
        classes: int,
        hidden: Sequence[int] = (256, 256),
        dropout: float = 0.3,
    ):
        columns = CodeEmbeddings(numbers, codes)
        parts = {"embeddings": columns, "mlp": MLP(columns.width, classes, hidden, dropout)}
        super().__init__(OrderedDict(parts))
