"""Step-E in Lightning: a callback and its loader; the module stays as it is.

pip install "stepe[lightning]"
python examples/lightning_callback.py
"""

import lightning.pytorch as L
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from stepe.data.noise import symmetric
from stepe.integrations.lightning import StepE

EPOCHS, BATCH = 30, 64


class Digits(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        x, y = batch
        return F.cross_entropy(self(x), y)

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        x, y = batch
        self.log("accuracy", (self(x).argmax(1) == y).float().mean())

    def configure_optimizers(self) -> dict:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
        steps = int(self.trainer.estimated_stepping_batches)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main() -> None:
    L.seed_everything(0)
    x, y = (torch.tensor(part) for part in load_digits(return_X_y=True))
    x = (x / 16).float()
    planted = symmetric(x[300:].numpy(), y[300:].numpy(), classes=10, rate=0.3, seed=0)
    train, test = TensorDataset(x[300:], torch.tensor(planted.labels)), TensorDataset(x[:300], y[:300])

    cleaner = StepE(train, epochs=EPOCHS, rho_max=0.35)
    trainer = L.Trainer(max_epochs=EPOCHS, callbacks=[cleaner], accelerator="cpu", logger=False)
    trainer.fit(Digits(), cleaner.loader(batch_size=BATCH), DataLoader(test, batch_size=300))

    issues = cleaner.issues
    right = planted.noisy[issues["row"]].mean()
    print(f"test accuracy {float(trainer.callback_metrics['accuracy']):.1%}")
    print(f"{len(issues)} labels look wrong, and {right:.1%} of them are")


if __name__ == "__main__":
    main()
