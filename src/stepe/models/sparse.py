"""An MLP over sparse rows: its first layer is an embedding bag, so that zeros cost neither time nor memory.

Like the :class:`~stepe.models.text.TextBag` it learns slowly on purpose: in each step of the training half of a row's
entries, chosen anew, are left out.
"""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from stepe.models.mlp import MLP

INITIAL = 0.01
SparseRows = tuple[Tensor, Tensor, Tensor]
"""columns and values of the entries, row after row, and where each row starts"""


class SparseMLP(nn.Module):
    """Gives logits of sparse rows."""

    def __init__(
        self,
        inputs: int,
        classes: int,
        width: int = 64,
        hidden: Sequence[int] = (256,),
        dropout: float = 0.5,
        absent: float = 0.5,
    ):
        super().__init__()
        self.absent = absent
        self.embedding = nn.EmbeddingBag(inputs, width, mode="sum")
        self.reset_parameters()
        self.dropout = nn.Dropout(dropout)
        self.mlp = MLP(width, classes, hidden, dropout)

    def reset_parameters(self) -> None:
        """Draw the embedding; the MLP draws its own weights."""
        # Columns outnumber rows: what most of them start with would stay, and drown what the others learn.
        nn.init.normal_(self.embedding.weight, std=INITIAL)

    def forward(self, rows: SparseRows) -> Tensor:
        """Return logits."""
        columns, values, starts = rows
        values = F.dropout(values, self.absent, self.training)
        logits: Tensor = self.mlp(self.dropout(self.embedding(columns, starts, per_sample_weights=values)))
        return logits
