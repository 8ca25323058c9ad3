"""stepe.training.fit in several processes: each takes its share of every batch and of every probe.

torchrun --nproc_per_node 2 examples/ddp_fit.py
"""

import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn

import stepe
from stepe.data.noise import symmetric


def main() -> None:
    dist.init_process_group()
    x, y = (torch.tensor(part) for part in load_digits(return_X_y=True))
    x = (x / 16).float()
    planted = symmetric(x[300:].numpy(), y[300:].numpy(), classes=10, rate=0.3, seed=0)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    result = stepe.fit(
        model, x[300:], planted.labels, epochs=30, batch_size=64, rho_max=0.35, test=(x[:300], y[:300]), device="cpu"
    )
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} processes, test accuracy {result.summary.test_accuracy:.1%}")
        wrong = planted.noisy[result.ledger["dropped"].numpy()].mean()
        print(f"{int(result.ledger['dropped'].sum())} samples dropped in the end, and {wrong:.1%} of them are wrong")
    dist.barrier()  # whoever leaves early takes its connections with it
    dist.destroy_process_group()
    time.sleep(0.5)  # gloo clears up in a thread of its own, which aborts the process if Python is gone by then


if __name__ == "__main__":
    main()
