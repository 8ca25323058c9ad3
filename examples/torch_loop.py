"""Step-E in a PyTorch loop of your own: handwritten digits, three in ten labels wrong.

python examples/torch_loop.py
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import stepe
from stepe.data.noise import symmetric

EPOCHS, BATCH = 30, 64


def main() -> None:
    x, y = (torch.tensor(part) for part in load_digits(return_X_y=True))
    x = (x / 16).float()
    planted = symmetric(x[300:].numpy(), y[300:].numpy(), classes=10, rate=0.3, seed=0)
    train, test = TensorDataset(x[300:], torch.tensor(planted.labels)), (x[:300], y[:300])

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    cleaner = stepe.StepE(train, epochs=EPOCHS, rho_max=0.35, length="full")
    loader = cleaner.loader(batch_size=BATCH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, epochs=EPOCHS, steps_per_epoch=len(loader))

    for _ in cleaner.epochs(model):
        for inputs, labels in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            scheduler.step()

    model.eval()
    accuracy = float((model(test[0]).argmax(1) == test[1]).float().mean())
    issues = cleaner.issues
    right = planted.noisy[issues["row"]].mean()
    print(f"test accuracy {accuracy:.1%}, learning rate {scheduler.get_last_lr()[0]:.1e} in the end")
    print(f"{len(issues)} labels look wrong, and {right:.1%} of them are")


if __name__ == "__main__":
    main()
