"""An accelerate loop: what may be prepared, and what not. The example runs it in two processes."""

import pytest
from shrinking import BATCH, KEPT, SHRINKS, Recorded, clouds, network

from stepe import RunError, StepE

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


def test_a_prepared_loader_is_refused():
    cleaner = StepE(Recorded(*clouds()), **SHRINKS)
    loader = accelerate.Accelerator(cpu=True).prepare(cleaner.loader(BATCH))
    with pytest.raises(RunError, match=r"leave it out of accelerator.prepare\(\)"):
        [list(loader) for _ in cleaner.epochs(network())]
