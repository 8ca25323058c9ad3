"""A bag of n-grams: the mean of their embeddings, dropout, one hidden layer.

It learns slowly on purpose, like the :class:`~stepe.models.mlp.MLP`: a model that knows its labels by heart agrees with
the wrong ones too. In each step of the training half of the n-grams, chosen anew, are left out, as a crop leaves out a
part of a picture.
"""

import torch
from torch import Tensor, nn


class TextBag(nn.Module):
    """Gives logits of texts, whose n-grams are numbers (n x length); 0 is padding."""

    def __init__(
        self,
        vocabulary: int,
        classes: int,
        width: int = 64,
        hidden: int = 256,
        dropout: float = 0.5,
        absent: float = 0.5,
    ):
        super().__init__()
        self.absent = absent
        self.embedding = nn.EmbeddingBag(vocabulary, width, mode="mean", padding_idx=0)
        self.body = nn.Sequential(nn.Dropout(dropout), nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout))
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        if self.training:
            x = x * (torch.rand(x.shape, device=x.device) >= self.absent)
        logits: Tensor = self.head(self.body(self.embedding(x)))
        return logits
