import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stepe
from stepe.loop.ledger import Ledger, Observation
from stepe.methods import Batch, Task, make_method
from stepe.methods.truncation import Truncation


def started(losses: Tensor, **options) -> Truncation:
    task = Task(torch.zeros(len(losses), dtype=torch.int64), 2, epochs=4, seed=0, criterion=lambda out, _: out)
    ledger, method = Ledger(len(losses)), make_method("truncation", **options)
    method.start(task, ledger)
    method.observe(0 if method.threshold == "untrained" else 1, Observation(losses), ledger)
    return method


def batch_of(losses: Tensor, weight: Tensor | None = None) -> Batch:
    labels = torch.zeros(len(losses), dtype=torch.int64)
    total = float(len(losses) if weight is None else weight.sum())
    return Batch(losses, labels, labels, torch.arange(len(losses)), weight, total)


def test_losses_above_the_threshold_count_as_the_threshold_and_give_no_gradient():
    method = started(torch.arange(10.0), rho_max=0.3)  # keeps 0..6, so tau is 6
    losses = torch.tensor([1.0, 5.0, 8.0, 100.0], requires_grad=True)
    loss = method.loss(lambda x: x, batch_of(losses))
    assert loss.item() == (1 + 5 + 6 + 6) / 4
    loss.backward()
    assert losses.grad.tolist() == [0.25, 0.25, 0.0, 0.0]


def test_weights_count_in_the_clipped_mean():
    method = started(torch.arange(10.0), rho_max=0.3)
    loss = method.loss(lambda x: x, batch_of(torch.tensor([2.0, 50.0]), torch.tensor([3.0, 1.0])))
    assert float(loss) == (3 * 2 + 6) / 4


@pytest.mark.parametrize(
    ("threshold", "probes"), [("untrained", [True, False, False]), ("first-epoch", [False, True, False])]
)
def test_the_threshold_is_taken_once(threshold, probes, blobs, make_model):
    result = stepe.fit(
        make_model(),
        blobs.x,
        blobs.given,
        method=Truncation(rho_max=0.3, threshold=threshold),
        epochs=3,
        device="cpu",
    )
    assert [row["probed"] for row in result.history] == probes
    assert all(row["dropped"] == 0 for row in result.history)


def test_before_its_probe_the_first_epoch_is_plain_training(blobs, make_model, bits):
    class FirstEpoch:
        def run_started(self, training) -> None: ...

        def epoch_ended(self, training, row) -> None:
            if row["epoch"] == 0:
                self.bits = bits(training.model)

        def run_ended(self, result) -> None: ...

    plain, truncated = FirstEpoch(), FirstEpoch()
    options = {"epochs": 3, "device": "cpu", "batch_size": 16}
    stepe.fit(make_model(), blobs.x, blobs.given, method="plain", observers=(plain,), **options)
    stepe.fit(
        make_model(),
        blobs.x,
        blobs.given,
        method=Truncation(rho_max=0.3, threshold="first-epoch"),
        observers=(truncated,),
        **options,
    )
    assert plain.bits == truncated.bits


def test_the_threshold_ignores_losses_that_are_not_finite():
    losses = torch.tensor([1.0, 2.0, 3.0, float("nan"), float("inf")])
    method = started(losses, rho_max=0.2)
    assert float(method.loss(lambda x: x, batch_of(torch.tensor([100.0])))) == 3.0


def test_the_threshold_comes_from_the_probe_of_the_untrained_model(blobs, make_model):
    result = stepe.fit(make_model(), blobs.x, blobs.given, method="truncation", rho_max=0.3, epochs=2, device="cpu")
    with torch.no_grad():
        losses = F.cross_entropy(make_model().eval()(blobs.x), blobs.given, reduction="none")
    expected = losses.sort().values[97 - 29 - 1]
    torch.testing.assert_close(result.training.method.state_dict()["tau"], expected)
