"""An accelerate loop: what may be prepared, and what not. The example runs it in two processes."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from shrinking import BATCH, KEPT, SHRINKS, Recorded, clouds, network

from stepe import RunError, StepE
from stepe.loop.plan import batch_sizes

accelerate = pytest.importorskip("accelerate")


def test_a_prepared_model_is_probed_and_trained():
    accelerator = accelerate.Accelerator(cpu=True)
    model = accelerator.prepare(network())
    cleaner = StepE(Recorded(*clouds()), **SHRINKS)
    loader = cleaner.loader(BATCH)
    for _ in cleaner.epochs(model):
        for x, _ in loader:
            accelerator.backward(cleaner.loss(model, x))
    assert cleaner.history[-1]["kept"] == KEPT


def test_accumulation_leaves_no_gradient_unstepped():
    accelerator = accelerate.Accelerator(cpu=True)
    model = network()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    cleaner = StepE(Recorded(*clouds()), **SHRINKS)
    loader, steps = cleaner.loader(BATCH), 0
    for _ in cleaner.epochs(model):
        for position, (x, y) in enumerate(loader, 1):
            is_due = position % 4 == 0 or position == len(loader)
            with contextlib.nullcontext() if is_due else accelerator.no_sync(model):
                accelerator.backward(F.cross_entropy(model(x), y) / 4)
            if is_due:
                optimizer.step()
                optimizer.zero_grad()
                steps += 1
        assert all(parameter.grad is None for parameter in model.parameters())
    kept = [row["kept"] for row in cleaner.history]
    assert steps == sum(-(-len(batch_sizes(count, BATCH)) // 4) for count in kept)


def test_a_prepared_loader_is_refused():
    cleaner = StepE(Recorded(*clouds()), **SHRINKS)
    loader = accelerate.Accelerator(cpu=True).prepare(cleaner.loader(BATCH))
    with pytest.raises(RunError, match=r"leave it out of accelerator.prepare\(\)"):
        [list(loader) for _ in cleaner.epochs(network())]
