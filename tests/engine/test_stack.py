"""Models that train as one stack: each becomes what training it alone would make of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import StepLR

import stepe
from stepe.engine import stack
from stepe.engine.eager import EagerEngine
from stepe.engine.learning_rate import ProgressRate, TorchRate, cosine
from stepe.engine.resident import ResidentEngine
from stepe.engine.stack import NotStackableError, Stack, stack_of, train_steps
from stepe.engine.steps import Steps, exhaust
from stepe.loop.ledger import Ledger
from stepe.loop.plan import Plan
from stepe.loop.task import Batch, Forward
from stepe.methods import Method, Task, make_method
from stepe.methods.step_e import StepwiseElimination
from stepe.models.mlp import MLP
from stepe.models.tabular import Tabular
from stepe.samples.samples import DatasetSamples, TensorSamples
from stepe.training.building import cross_entropy

CPU = torch.device("cpu")
N, CLASSES, PROBERS = 97, 3, 3
Make = Callable[[], nn.Module]


def sgd(parameters: Any) -> Optimizer:
    return SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-2)


def task_of(labels: Tensor, seed: int = 0) -> Task:
    return Task(labels, CLASSES, epochs=4, seed=seed, criterion=cross_entropy(CLASSES))


def probers(
    make: Make,
    x: Tensor,
    y: Tensor,
    *,
    optimizer: Callable[[Any], Optimizer] = sgd,
    scheduled: bool = False,
    kind: type[EagerEngine] = EagerEngine,
    samples: Any = None,
    **options: Any,
) -> list[EagerEngine]:
    """Engines whose models start from different weights; in double precision, so that what differs is no rounding."""
    engines = []
    for seed in range(PROBERS):
        torch.manual_seed(seed)
        model = make().double()
        made = optimizer(model.parameters())
        rate = TorchRate(StepLR(made, 1, 0.5), 20) if scheduled else ProgressRate(made, cosine)
        engines.append(
            kind(
                model,
                samples or TensorSamples(x.double()),
                task_of(y, seed),
                optimizer=made,
                rate=rate,
                device=CPU,
                batch_size=16,
                probe_batch_size=32,
                **options,
            )
        )
    return engines


def started(method: str | Method, y: Tensor, **options: Any) -> Method:
    made = make_method(method, **options)
    made.start(task_of(y), Ledger(len(y)))
    return made


def batch_normed() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, CLASSES))


def partly_frozen() -> nn.Module:
    model = MLP(6, CLASSES, hidden=(8, 7))
    next(model.parameters()).requires_grad_(False)
    return model


def nested() -> nn.Module:
    act = nn.ReLU(inplace=True)  # runs twice
    body = nn.Sequential(nn.Linear(6, 9, bias=False), act, nn.LayerNorm(9), nn.Linear(9, 8), act)
    return nn.Sequential(
        nn.Flatten(), body, nn.BatchNorm1d(8, affine=False, track_running_stats=False), nn.Linear(8, 3)
    )


MODELS: list[Make] = [batch_normed, partly_frozen, nested]


def plans(method: str) -> list[Plan]:
    """Of other lengths each, with a shorter last batch in one."""
    parts = []
    for seed in range(PROBERS):
        draw = torch.Generator().manual_seed(seed)
        kept = torch.arange(N) % (seed + 2) != 0
        plan = Plan(epoch=1, epochs=4, kept=kept, seed=seed)
        if method == "step-e-plus":
            target = torch.rand(N, CLASSES, generator=torch.Generator().manual_seed(9)).softmax(1)
            plan = replace(plan, target=target.half(), weight=torch.rand(N, generator=draw) + 0.1)
        parts.append(plan)
    return parts


def in_steps(engines: list[EagerEngine], parts: list[Plan], method: Method) -> Steps[None]:
    stack = stack_of(engines, method)
    assert stack is not None
    return train_steps(stack, engines, parts, method)


def trained(engines: list[EagerEngine], method: Method, parts: list[Plan], *, together: bool) -> list[dict[str, Any]]:
    for epoch in (1, 2):
        now = [replace(plan, epoch=epoch) for plan in parts]
        if together:
            exhaust(in_steps(engines, now, method))
        else:
            for engine, plan in zip(engines, now, strict=True):
                engine.train(plan, method)
    return [{"model": engine.model.state_dict(), **engine.state_dict()} for engine in engines]


@pytest.fixture
def joint_steps(monkeypatch) -> list[int]:
    """The sizes of the batches that were trained on as one."""
    sizes: list[int] = []
    train_together = stack._train_together

    def noting(model: Any, turns: Any, method: Method) -> None:
        sizes.append(len(turns[0].batch.y))
        train_together(model, turns, method)

    monkeypatch.setattr(stack, "_train_together", noting)
    return sizes


def test_codes_of_categories_find_the_embeddings_of_their_own_model(blobs, joint_steps):
    x = torch.cat([blobs.x[:, :4], torch.arange(N)[:, None] % torch.tensor([3, 5])], dim=1)
    method, parts = started("step-e", blobs.given, rho_max=0.3), plans("step-e")

    def make() -> nn.Module:
        return Tabular(4, [3, 5], CLASSES, hidden=(8,), dropout=0.0)

    found, expected = (
        trained(probers(make, x, blobs.given), method, parts, together=together) for together in (True, False)
    )
    assert joint_steps.count(16) >= 6
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


def hooked_embedding() -> nn.Module:
    model = Tabular(5, [3], CLASSES, hidden=(8,), dropout=0.0)
    model[0][0].register_forward_hook(lambda module, inputs, output: 2 * output)
    return model


def test_an_embedding_that_does_more_than_its_class_says_trains_in_turn(blobs):
    x = torch.cat([blobs.x[:, :5], torch.zeros(N, 1)], dim=1)
    assert stack_of(probers(hooked_embedding, x, blobs.given), started("step-e", blobs.given, rho_max=0.3)) is None


@pytest.mark.parametrize("method", ["step-e", "step-e-plus"])
@pytest.mark.parametrize("make", MODELS)
def test_each_model_becomes_what_it_becomes_in_turn(make, method, blobs, joint_steps):
    started_method = started(method, blobs.given, rho_max=0.3)
    parts = plans(method)
    assert len({len(plan.batches(16)) for plan in parts}) == PROBERS
    found, expected = (
        trained(probers(make, blobs.x, blobs.given), started_method, parts, together=together)
        for together in (True, False)
    )
    assert joint_steps.count(16) >= 6
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("options", [{"optimizer": AdamW}, {"scheduled": True}], ids=["adamw", "scheduler"])
def test_every_model_keeps_its_own_optimizer_and_rate(options, blobs, joint_steps):
    method = started("step-e", blobs.given, rho_max=0.3)
    found, expected = (
        trained(probers(partly_frozen, blobs.x, blobs.given, **options), method, plans("step-e"), together=together)
        for together in (True, False)
    )
    assert joint_steps
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


def test_batch_norm_that_its_owner_froze_stays_frozen(blobs, joint_steps):
    method = started("step-e", blobs.given, rho_max=0.3)
    both = []
    for together in (True, False):
        engines = probers(batch_normed, blobs.x, blobs.given)
        for engine in engines:
            engine.model[1].eval()
        both.append(trained(engines, method, plans("step-e"), together=together))
        assert not engines[0].model[1].running_mean.any()
    assert joint_steps
    torch.testing.assert_close(*both, rtol=1e-6, atol=1e-7)


class OwnForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x - x.mean(0))


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, CLASSES))
    model[1].weight = model[0].weight
    return model


def hooked() -> nn.Module:
    model = batch_normed()
    model[0].register_forward_hook(lambda layer, inputs, outputs: 2 * outputs)
    return model


def clipped() -> nn.Module:
    model = batch_normed()
    model[0].weight.register_hook(lambda gradient: gradient.clamp(-1, 1))
    return model


def parametrized() -> nn.Module:
    return nn.Sequential(spectral_norm(nn.Linear(6, CLASSES)))


def counting() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, momentum=None), nn.Linear(8, CLASSES))


def flattening() -> nn.Module:
    return nn.Sequential(nn.Linear(6, CLASSES), nn.Flatten(0), nn.Unflatten(0, (-1, CLASSES)))


def patched() -> nn.Module:
    model = batch_normed()
    model[0].forward = lambda x: torch.zeros(len(x), 16)  # type: ignore[method-assign]
    return model


def convolving() -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(8, CLASSES))


@pytest.mark.parametrize(
    "make", [OwnForward, tied, hooked, clipped, parametrized, counting, flattening, patched, convolving]
)
def test_models_that_are_more_than_their_layers_train_in_turn(make, blobs):
    assert not stack_of(probers(make, blobs.x, blobs.given), started("step-e", blobs.given, rho_max=0.3))


class OfItsOwn(StepwiseElimination):
    name = "of-its-own"

    def loss(self, forward: Forward, batch: Batch) -> Tensor:
        return forward(batch.x).mean(0).square().sum()


@pytest.mark.parametrize(
    "options",
    [
        {"amp": "bf16"},
        {"averaging": 0.5},
        {"forward": lambda model, x: model(x)},
        {"kind": ResidentEngine},
        {"samples": DatasetSamples([(torch.zeros(6), 0)] * N)},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_is_special_about_an_engine_makes_its_model_train_in_turn(options, blobs):
    assert not stack_of(
        probers(batch_normed, blobs.x, blobs.given, **options), started("step-e", blobs.given, rho_max=0.3)
    )


def test_a_loss_that_knows_of_other_samples_is_not_stacked(blobs):
    engines = probers(batch_normed, blobs.x, blobs.given)
    assert not stack_of(engines, started(OfItsOwn(rho_max=0.3), blobs.given))


def test_large_models_and_models_that_differ_train_in_turn(blobs, monkeypatch):
    method, engines = started("step-e", blobs.given, rho_max=0.3), probers(batch_normed, blobs.x, blobs.given)
    found = stack_of(engines, method)
    assert found is not None
    with found:
        pass
    engines[1].model[1].eval()
    assert not stack_of(engines, method)
    monkeypatch.setattr(stack, "SMALL_MODEL", 100)
    assert not stack_of(probers(batch_normed, blobs.x, blobs.given), method)


def test_a_run_does_not_depend_on_whether_its_probers_are_stacked(blobs, joint_steps):
    class Wrapped(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> Tensor:
            return self.model(x)

    options: dict[str, Any] = {"epochs": 4, "warmup": 1, "rho_max": 0.3, "batch_size": 16, "device": "cpu"}
    ledgers, counts = [], []
    for wrap in (nn.Sequential, Wrapped):
        torch.manual_seed(0)
        ledgers.append(stepe.fit(wrap(batch_normed()), blobs.x, blobs.given, probe="cross:2x2", **options).ledger)
        counts.append(len(joint_steps))
    assert counts[0] > 0
    assert counts[1] == counts[0]
    torch.testing.assert_close(ledgers[0]["loss"], ledgers[1]["loss"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("finish", [True, False], ids=["whole epoch", "interrupted"])
def test_after_an_epoch_every_model_has_its_weights_for_itself(finish, blobs):
    engines = probers(batch_normed, blobs.x, blobs.given)
    steps = in_steps(engines, plans("step-e"), started("step-e", blobs.given, rho_max=0.3))
    next(steps)
    first = engines[0].model[0].weight
    assert first.untyped_storage().nbytes() == PROBERS * first.nbytes
    if finish:
        exhaust(steps)
    else:
        steps.close()
    for engine in engines:
        for tensor in engine.model.state_dict().values():
            assert tensor.untyped_storage().nbytes() == tensor.nbytes


def test_weights_that_cannot_be_stacked_stay_where_they_are():
    models = [batch_normed(), batch_normed()]
    models[1][3].bias.requires_grad_(False)
    before = models[0][0].weight.data_ptr()
    with pytest.raises(NotStackableError, match="another one in other models"):
        Stack(models)
    assert models[0][0].weight.data_ptr() == before


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_dropout_keeps_its_share_and_the_mean(share):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Dropout(share))
    with Stack([model, nn.Sequential(nn.Dropout(share))]) as both:
        rows = both(torch.ones(2 * 501, 333))
        again = both(torch.ones(2 * 501, 333))
    assert float((rows > 0).double().mean()) == pytest.approx(1 - share, abs=4e-3)
    assert float(rows.mean()) == pytest.approx(1, abs=1e-2)
    assert not torch.equal(rows[:501], rows[501:])
    assert not torch.equal(rows, again)
    with Stack([model.eval(), nn.Sequential(nn.Dropout(share)).eval()]) as both:
        assert torch.equal(both(rows), rows)


def test_the_same_seed_draws_the_same_dropout(blobs, bits):
    def dropping() -> nn.Module:
        return MLP(6, CLASSES, hidden=(16,), dropout=0.5)

    method = started("step-e", blobs.given, rho_max=0.3)
    runs = []
    for noise in (1, 2):
        engines = probers(dropping, blobs.x, blobs.given)
        torch.manual_seed(noise)
        trained(engines, method, plans("step-e"), together=True)
        runs.append([bits(engine.model) for engine in engines])
    assert runs[0] == runs[1]
