import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.optim import SGD

import stepe
from stepe import InputError
from stepe.engine.learning_rate import constant
from stepe.loop.ledger import Observation
from stepe.loop.plan import Plan
from stepe.methods import CoTeaching
from stepe.methods.co_teaching import small_losses
from stepe.models.pair import Pair
from stepe.run.record import Summary
from stepe.training.building import Result


def reference(logits: np.ndarray, others: np.ndarray, labels: np.ndarray, forgotten: float) -> tuple[float, np.ndarray]:
    """The loss of the network that gave ``logits``, and its gradient, a sample at a time, as in Algorithm 1."""

    def loss(row: np.ndarray, label: int) -> float:
        return -math.log(math.exp(row[label]) / sum(math.exp(value) for value in row))

    keep = math.ceil((1 - forgotten) * len(labels) - 1e-9)
    by_others = sorted(range(len(labels)), key=lambda i: loss(others[i], labels[i]))
    total, gradient = 0.0, np.zeros_like(logits)
    for i in by_others[:keep]:
        total += loss(logits[i], labels[i]) / keep
        odds = np.exp(logits[i])
        gradient[i] = odds / odds.sum() / keep
        gradient[i, labels[i]] -= 1 / keep
    return total, gradient


@pytest.mark.parametrize(("epoch", "forgotten"), [(0, 0.0), (1, 0.15), (2, 0.3), (3, 0.45), (4, 0.45)])
def test_each_network_learns_what_the_other_finds_easy_and_nothing_else(epoch, forgotten, started, batch_of):
    draw = torch.Generator().manual_seed(epoch)
    labels = torch.randint(0, 3, (11,), generator=draw)
    one, other = torch.randn(2, 11, 3, generator=draw).unbind(0)
    method, ledger = started("co-teaching", labels, epochs=5, rho_max=0.45, ramp=3)
    plan = method.plan(epoch, ledger)
    method.prepare(epoch)
    assert plan.kept.all()
    assert plan.drop_fraction == pytest.approx(forgotten)

    leaves = [one.clone().requires_grad_(), other.clone().requires_grad_()]
    found = method.loss(lambda x: torch.cat(leaves), batch_of(torch.zeros(11, 1), labels))
    found.backward()
    numbers = [part.double().numpy() for part in (one, other)]
    losses, gradients = zip(
        reference(*numbers, labels.numpy(), forgotten), reference(*numbers[::-1], labels.numpy(), forgotten),
        strict=True,
    )  # fmt: skip
    assert found.item() == pytest.approx(sum(losses), rel=1e-5)
    for leaf, gradient in zip(leaves, gradients, strict=True):
        np.testing.assert_allclose(leaf.grad.numpy(), gradient, atol=1e-6)
        assert (leaf.grad.abs().sum(1) > 0).sum() == math.ceil((1 - forgotten) * 11 - 1e-9)
    if epoch > 1:
        assert not torch.equal(leaves[0].grad == 0, leaves[1].grad == 0)  # or nothing would have been exchanged


def train_two(first: nn.Module, second: nn.Module, x: Tensor, y: Tensor, *, tau: float, ramp: int, epochs: int) -> None:
    """Algorithm 1 with two optimizers and the chosen samples alone, in the order of ``fit``."""
    optimizers = [
        SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4) for model in (first, second)
    ]
    for epoch in range(epochs):
        plan = Plan(epoch, epochs, torch.ones(len(y), dtype=torch.bool), seed=0)
        for share in plan.batches(16):
            inputs, labels = x[share.index], y[share.index]
            logits = [first(inputs), second(inputs)]
            keep = math.ceil(len(labels) * (1 - min(epoch / ramp * tau, tau)) - 1e-9)
            easy = [F.cross_entropy(each, labels, reduction="none").argsort()[:keep] for each in logits]
            for optimizer, each, chosen in zip(optimizers, logits, reversed(easy), strict=True):
                optimizer.zero_grad()
                F.cross_entropy(each[chosen], labels[chosen]).backward()
                optimizer.step()


def small_network(seed: int) -> nn.Module:
    """Without dropout: a loop of one's own draws otherwise than an engine."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)).double()


@pytest.mark.parametrize("engine", ["eager", "resident"])
def test_a_run_is_the_papers_algorithm(engine, blobs):
    options = {"epochs": 6, "batch_size": 16, "learning_rate": 0.05, "rate_shape": constant, "device": "cpu"}
    found = stepe.fit(
        Pair(small_network(1), small_network(2)), blobs.x.double(), blobs.given,
        method=CoTeaching(rho_max=0.4, ramp=3), engine=engine, **options,
    )  # fmt: skip
    expected = Pair(small_network(1), small_network(2))
    train_two(expected.first, expected.second, blobs.x.double(), blobs.given, tau=0.4, ramp=3, epochs=6)
    torch.testing.assert_close(found.training.model.state_dict(), expected.state_dict())
    assert found.model is found.training.model.first


def test_with_nothing_to_leave_out_the_model_trains_as_by_plain_training(blobs, make_model, bits):
    options: dict[str, Any] = {"epochs": 4, "batch_size": 16, "device": "cpu", "test": (blobs.x, blobs.clean)}
    model = make_model()
    result = stepe.fit(model, blobs.x, blobs.given, method="co-teaching", noise_rate=0.0, **options)
    assert result.model is model
    assert bits(model) == bits(stepe.fit(make_model(), blobs.x, blobs.given, method="plain", **options).model)
    assert bits(result.training.model.second) != bits(model)


# ---------------------------------------------------------------------------------------------------------------
# The choice


def test_equal_losses_are_chosen_in_their_order_and_nan_comes_last():
    losses = torch.tensor([1.0, math.nan, 0.5, 1.0, math.inf, 1.0])
    chosen = [
        torch.nonzero(small_losses(losses, torch.tensor(1 - keep / 6))).flatten().tolist() for keep in range(1, 7)
    ]
    assert chosen == [[2], [0, 2], [0, 2, 3], [0, 2, 3, 5], [0, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8])
def test_a_share_is_not_lost_to_rounding(share):
    for size in (10, 50, 250, 1000):
        assert int(small_losses(torch.rand(size), torch.tensor(share)).sum()) == round((1 - share) * size)


def test_labels_that_were_checked_are_always_chosen(blobs, make_model):
    losses = torch.arange(6.0)
    checked = torch.tensor([False, False, False, False, True, True])
    assert torch.nonzero(small_losses(losses, torch.tensor(0.5), checked)).flatten().tolist() == [0, 4, 5]
    assert torch.nonzero(small_losses(losses, torch.tensor(0.9), checked)).flatten().tolist() == [4, 5]

    run = partial(stepe.fit, epochs=12, batch_size=16, device="cpu")
    wrong = blobs.given != blobs.clean
    believed, doubted = (
        run(make_model(), blobs.x, blobs.given, method=CoTeaching(rho_max=0.9, ramp=1), trusted=trusted)
        .ledger["loss"][wrong]
        .mean()
        for trusted in (wrong, None)
    )
    assert believed < doubted - 0.5


def test_weights_count_among_the_chosen(started, batch_of):
    labels = torch.tensor([0, 1, 2, 0])
    method, _ = started("co-teaching", labels, rho_max=0.5, ramp=1)
    method.prepare(1)
    outputs = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    losses = F.cross_entropy(outputs, labels, reduction="none")
    weight = torch.tensor([1.0, 2.0, 0.0, 5.0])
    kept = losses.argsort()[:2]
    found = method.loss(lambda x: torch.cat([outputs, outputs]), batch_of(torch.zeros(4, 1), labels, weight))
    assert float(found) == pytest.approx(2 * 2 * float((weight * losses)[kept].sum()) / 8)
    nothing = replace(batch_of(torch.zeros(4, 1), labels, torch.zeros(4)), total_weight=1.0)
    assert float(method.loss(lambda x: torch.cat([outputs, outputs]), nothing)) == 0


# ---------------------------------------------------------------------------------------------------------------
# How much


def shares(result: Result) -> list[float]:
    return [row["drop_fraction"] for row in result.history]


def test_the_known_noise_rate_is_what_is_left_out_in_the_end(blobs, make_model):
    run = partial(stepe.fit, data=blobs.x, labels=blobs.given, method="co-teaching", epochs=13, device="cpu")
    found = run(make_model(), noise_rate=0.2)
    assert shares(found) == pytest.approx([0.02 * min(epoch, 10) for epoch in range(13)])
    assert not any(row["probed"] for row in found.history)
    assert found.summary.rho_max == 0.2
    assert shares(run(make_model(), noise_rate=0.2, rho_max=0.5))[-1] == 0.5


@pytest.mark.parametrize("options", [{}, {"rho_max": "auto", "noise_rate": 0.9}])
def test_an_unknown_rate_is_estimated_once_after_a_sixth_of_the_run(options, fooled):
    found = fooled("co-teaching", **options)
    assert [row["epoch"] for row in found.history if row["probed"]] == [5]
    assert shares(found)[:5] == [0.0] * 5
    rate = found.summary.noise_rate.rate
    assert rate > 0
    assert shares(found)[5] == pytest.approx(rate / 2)
    assert shares(found)[10:] == [found.summary.rho_max] * 20 == [rate] * 20


def test_where_nothing_can_be_said_nothing_is_left_out_and_the_question_stays(started):
    labels = torch.arange(60) % 3
    method, ledger = started("co-teaching", labels, epochs=12, ramp=1)
    assert [epoch for epoch in range(12) if method.wants_probe(epoch)] == list(range(2, 12))
    method.observe(2, Observation(torch.ones(60), probability=torch.full((60, 3), 1 / 3)), ledger)
    assert method.plan(2, ledger).drop_fraction == 0
    assert method.wants_probe(3)
    wrong = torch.arange(60) % 4 == 0
    sure = F.one_hot(torch.where(wrong, (labels + 1) % 3, labels), 3) * 0.9 + 0.03
    method.observe(3, Observation(torch.ones(60), probability=sure), ledger)
    assert not method.wants_probe(4)
    assert 0.1 < method.plan(4, ledger).drop_fraction < 0.4


def test_the_rate_of_wrong_numbers_has_to_be_known(blobs):
    model = nn.Sequential(nn.Linear(6, 1), nn.Flatten(0))
    with pytest.raises(InputError, match="estimated for classes alone, and these are numbers: give rho_max"):
        stepe.fit(model, blobs.x, blobs.x[:, 0], method="co-teaching", criterion=nn.MSELoss(reduction="none"))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"rho_max": 1.0}, "rho_max is 1.0"), ({"rho_max": "much"}, "rho_max is 'much'"), ({"ramp": 0}, "ramp is 0")],
)
def test_options_that_make_no_sense_are_refused(options, message, started, labels):
    with pytest.raises(InputError, match=message):
        started("co-teaching", labels, **options)


# ---------------------------------------------------------------------------------------------------------------
# Around it


def test_an_optimizer_of_one_network_is_refused(blobs, make_model):
    run = partial(stepe.fit, data=blobs.x, labels=blobs.given, method="co-teaching", rho_max=0.3, epochs=2)
    model = make_model()
    with pytest.raises(InputError, match="trains 2 networks, and the optimizer holds the weights of one"):
        run(model, optimizer=SGD(model.parameters(), lr=0.1))
    pair = Pair(make_model(1), make_model(2))
    second = pair.second[0].weight.clone()
    run(pair, optimizer=SGD(pair.parameters(), lr=0.1))
    assert not torch.equal(pair.second[0].weight, second)


def test_in_a_loop_of_ones_own_a_pair_trains_as_by_fit(blobs):
    data = torch.utils.data.TensorDataset(blobs.x.double(), blobs.given)
    methods = [CoTeaching(rho_max=0.4, ramp=2) for _ in range(2)]
    reference = stepe.fit(
        small_network(1), blobs.x.double(), blobs.given, method=methods[0], epochs=4, seed=3, batch_size=16,
        device="cpu", rate_shape=constant,
    )  # fmt: skip

    cleaner = stepe.StepE(data, labels=blobs.given, method=methods[1], epochs=4, seed=3)
    pair = cleaner.method.network(small_network(1))
    optimizer = SGD(pair.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    loader = cleaner.loader(16)
    for _ in cleaner.epochs(pair):
        for x, _ in loader:
            with pytest.raises(InputError, match=r"train model = cleaner.method.network\(model\)"):
                cleaner.loss(lambda x: x, x)
            optimizer.zero_grad()
            cleaner.loss(pair, x).backward()
            optimizer.step()
    torch.testing.assert_close(pair.state_dict(), reference.training.model.state_dict())


def test_it_is_less_fooled_than_plain_training(fooled):
    assert fooled("co-teaching", rho_max=0.4).summary.test_accuracy > fooled("plain").summary.test_accuracy + 0.1
    assert fooled("co-teaching", rho_max=0.4).summary.noise.auroc > fooled("plain").summary.noise.auroc + 0.1


def test_digits_with_four_wrong_labels_in_ten_are_learned():
    digits = load_digits()
    x, y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    draw = torch.Generator().manual_seed(0)
    train, test = torch.randperm(len(x), generator=draw).split([600, len(x) - 600])
    wrong = torch.rand(len(train), generator=draw) < 0.4
    given = torch.where(wrong, (y[train] + torch.randint(1, 10, (len(train),), generator=draw)) % 10, y[train])

    def run(method: str, **options: Any) -> Summary:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
        result = stepe.fit(
            model, x[train], given, method=method, epochs=30, batch_size=32, weight_decay=0, device="cpu",
            test=(x[test], y[test]), **options,
        )  # fmt: skip
        return result.summary

    assert run("plain").test_accuracy < 0.84
    assert run("co-teaching", noise_rate=0.4).test_accuracy > 0.87
    found_out = run("co-teaching")
    assert found_out.test_accuracy > 0.86
    assert 0.3 < found_out.noise_rate.rate < 0.45
