"""An MLP for tables: an embedding for each categorical column beside the numbers; dropout, no BatchNorm."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from stepe.models.mlp import MLP

WIDEST = 16


class Tabular(nn.Module):
    """Logits of rows of numbers whose last columns are the codes of categories."""

    def __init__(
        self,
        numbers: int,
        codes: Sequence[int],
        classes: int,
        hidden: Sequence[int] = (256, 256),
        dropout: float = 0.3,
    ):
        super().__init__()
        self.numbers = numbers
        widths = [min(WIDEST, (count + 1) // 2) for count in codes]
        self.embeddings = nn.ModuleList(nn.Embedding(count, width) for count, width in zip(codes, widths, strict=True))
        self.mlp = MLP(numbers + sum(widths), classes, hidden, dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        codes = x[:, self.numbers :].long()
        embedded = [embedding(codes[:, i]) for i, embedding in enumerate(self.embeddings)]
        logits: Tensor = self.mlp(torch.cat([x[:, : self.numbers], *embedded], dim=1))
        return logits
