"""Early-learning regularisation: hold the model to what it thought before it learned labels by heart.

Liu et al., *Early-Learning Regularization Prevents Memorization of Noisy Labels*, 2020, Eq. 6 and 9: ELR, with one
network and without mixup (ELR+ has both).
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from stepe.loop.ledger import Ledger, read_rows, write_rows
from stepe.loop.task import Batch, Forward, Task
from stepe.methods.plain import Plain
from stepe.methods.robust_loss import log_probabilities, of_label
from stepe.options import Option

SMALLEST = 1e-4
"""probabilities are kept this far from 0 and 1, as in the authors' code: the logarithm of 1 - agreement stays finite"""


@dataclass
class EarlyLearning(Plain):
    """Add to the cross-entropy ``strength * log(1 - agreement)`` with a running mean of the model's own predictions.

    Where labels agree with that mean it changes little; where they do not, it cancels their gradient. The defaults are
    the paper's for CIFAR-10 with symmetric noise.
    """

    name: ClassVar[str] = "elr"
    summary: ClassVar[str] = "holds the model to a running mean of its own earlier predictions"
    paper: ClassVar[str] = "Liu et al., 2020"
    needs_classes: ClassVar[bool] = True

    strength: Annotated[
        float,
        Option(
            "Weight of the regulariser: lambda; 1 for asymmetric noise, 7 for the 100 classes of CIFAR-100. 0 is plain "
            "training.",
            min=0,
        ),
    ] = 3.0
    memory: Annotated[
        float,
        Option(
            "How much the running mean remembers: beta; 0.9 for asymmetric noise and for CIFAR-100.", min=0, below=1
        ),
    ] = 0.7

    def start(self, task: Task, ledger: Ledger) -> None:
        """Declare the running mean, where the loss is computed."""
        super().start(task, ledger)
        self._mean = ledger.add_column("early", torch.float32, 0.0, width=task.classes, device=task.device)

    def written_columns(self) -> list[Tensor]:
        """Return the running mean."""
        return [self._mean]

    def loss(self, forward: Forward, batch: Batch) -> Tensor:
        """Add the regulariser to the cross-entropy; the running mean takes in this batch first, as in the paper."""
        logs = log_probabilities(forward(batch.x), self.task)
        probability = logs[:, : self.task.classes].exp().clamp(SMALLEST, 1 - SMALLEST)
        with torch.no_grad():
            now = probability / probability.sum(1, keepdim=True)
            mean = self.memory * read_rows(self._mean, batch.index) + (1 - self.memory) * now
            write_rows(self._mean, batch.index, mean)
        agreement = (mean * probability).sum(1)
        return batch.mean(self.strength * (-agreement).log1p() - of_label(logs, batch.target))
