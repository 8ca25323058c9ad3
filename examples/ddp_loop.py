"""Step-E in a DDP loop of your own.

torchrun --nproc_per_node 2 examples/ddp_loop.py
"""

import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import stepe
from stepe.data.noise import symmetric

EPOCHS, BATCH = 30, 64


def main() -> None:
    dist.init_process_group("gloo")
    x, y = (torch.tensor(part) for part in load_digits(return_X_y=True))
    x = (x / 16).float()
    planted = symmetric(x[300:].numpy(), y[300:].numpy(), classes=10, rate=0.3, seed=0)

    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    cleaner = stepe.StepE(TensorDataset(x[300:], torch.tensor(planted.labels)), epochs=EPOCHS, rho_max=0.35)
    loader = cleaner.loader(batch_size=BATCH)  # of all processes together

    for _ in cleaner.epochs(model):
        for inputs, _ in loader:
            optimizer.param_groups[0]["lr"] = 0.1 * (1 - cleaner.progress)
            optimizer.zero_grad()
            cleaner.loss(model, inputs).backward()  # exact, also where processes have uneven shares
            optimizer.step()

    model.eval()
    accuracy = float((model(x[:300]).argmax(1) == y[:300]).float().mean())
    issues = cleaner.issues
    if dist.get_rank() == 0:
        right = planted.noisy[issues["row"]].mean()
        print(f"{dist.get_world_size()} processes, test accuracy {accuracy:.1%}")
        print(f"{len(issues)} labels look wrong, and {right:.1%} of them are")
    dist.barrier()  # whoever leaves early takes its connections with it
    dist.destroy_process_group()
    time.sleep(0.5)  # gloo clears up in a thread of its own, which aborts the process if Python is gone by then


if __name__ == "__main__":
    main()
