"""Step-E in an accelerate loop: prepare model and optimizer as always, and take the batches from the cleaner.

pip install "stepe[accelerate]"
torchrun --nproc_per_node 2 examples/accelerate_loop.py
"""

import time

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import stepe
from stepe.data.noise import symmetric

EPOCHS, BATCH = 30, 64


def main() -> None:
    accelerator = Accelerator(cpu=True)
    x, y = (torch.tensor(part) for part in load_digits(return_X_y=True))
    x = (x / 16).float()
    planted = symmetric(x[300:].numpy(), y[300:].numpy(), classes=10, rate=0.3, seed=0)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    model, optimizer = accelerator.prepare(model, optimizer)
    cleaner = stepe.StepE(
        TensorDataset(x[300:], torch.tensor(planted.labels)), epochs=EPOCHS, rho_max=0.35, length="full"
    )
    loader = cleaner.loader(batch_size=BATCH)  # of all processes together; not prepared: it is shared out already
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, epochs=EPOCHS, steps_per_epoch=len(loader))

    for _ in cleaner.epochs(model):
        for inputs, labels in loader:
            inputs, labels = inputs.to(accelerator.device), labels.to(accelerator.device)
            optimizer.zero_grad()
            accelerator.backward(F.cross_entropy(model(inputs), labels))
            optimizer.step()
            scheduler.step()

    model.eval()
    accuracy = float((model(x[:300].to(accelerator.device)).argmax(1).cpu() == y[:300]).float().mean())
    issues = cleaner.issues
    right = planted.noisy[issues["row"]].mean()
    accelerator.print(f"{accelerator.num_processes} processes, test accuracy {accuracy:.1%}")
    accelerator.print(f"{len(issues)} labels look wrong, and {right:.1%} of them are")
    accelerator.wait_for_everyone()  # whoever leaves early takes its connections with it
    accelerator.end_training()
    time.sleep(0.5)  # gloo clears up in a thread of its own, which aborts the process if Python is gone by then


if __name__ == "__main__":
    main()
