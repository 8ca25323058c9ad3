import inspect
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import stepe
from jittered import Jittered
from stepe.loop.ledger import Ledger, Observation
from stepe.loop.plan import Plan
from stepe.loop.randomness import Stream
from stepe.methods import METHODS, Task, make_method
from stepe.methods.step_e import step_e
from stepe.training.building import Result


def unreduced(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


class Run:
    """Drives a method by hand, with losses of one's choice."""

    def __init__(self, n: int = 10, epochs: int = 10, groups: Tensor | None = None, **options: Any):
        self.task = Task(torch.arange(n) % 2, 2, epochs, seed=0, criterion=unreduced, groups=groups)
        self.ledger = Ledger(n)
        self.method = make_method("step-e", **options)
        self.method.start(self.task, self.ledger)

    def epoch(self, epoch: int, losses: Any) -> Plan:
        if self.method.wants_probe(epoch):
            self.method.observe(epoch, Observation(torch.tensor(losses, dtype=torch.float32)), self.ledger)
        plan = self.method.plan(epoch, self.ledger)
        self.ledger.record_selection(plan.kept)
        return plan


# The paper's algorithm


def test_the_algorithm_reads_in_forty_lines():
    assert len(inspect.getsource(step_e).splitlines()) <= 40


@settings(max_examples=60)
@given(
    st.integers(1, 12).flatmap(
        lambda n: st.lists(
            st.lists(st.sampled_from([0.0, 0.5, 0.5, 1.0, 3.0, float("nan"), float("inf")]), min_size=n, max_size=n),
            min_size=2,
            max_size=7,
        )
    ),
    st.integers(0, 6),
    st.sampled_from([0.0, 0.2, 0.5, 0.9]),
)
def test_the_method_keeps_what_the_algorithm_of_the_paper_keeps(losses, warmup, rho_max):
    epochs, n = len(losses), len(losses[0])
    warmup = min(warmup, epochs - 1)
    probed, trained = iter(losses[warmup:]), []
    step_e(lambda: torch.tensor(next(probed)), trained.append, n, epochs=epochs, warmup=warmup, rho_max=rho_max)
    run = Run(n, epochs, schedule="linear", warmup=warmup, rho_max=rho_max)
    for epoch, (seen, kept) in enumerate(zip(losses, trained, strict=True)):
        assert torch.equal(run.epoch(epoch, seen).kept, kept)


def test_fit_trains_the_model_that_the_algorithm_of_the_paper_trains(blobs):
    model = nn.Linear(6, 3)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    epochs, kept_by_paper = 8, []

    def train(kept: Tensor) -> None:
        kept_by_paper.append(int(kept.sum()))
        model.zero_grad()
        F.cross_entropy(model(blobs.x[kept]), blobs.given[kept]).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.5 * parameter.grad

    with torch.enable_grad():
        step_e(lambda: unreduced(model(blobs.x), blobs.given).detach(), train, 97, epochs=epochs, warmup=2, rho_max=0.3)
    other = nn.Linear(6, 3)
    other.load_state_dict(start)
    result = stepe.fit(
        other, blobs.x, blobs.given, method="step-e", rho_max=0.3, warmup=2, schedule="linear", epochs=epochs,
        batch_size=97, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5), device="cpu",
        rate_shape=lambda progress: 1.0,
    )  # fmt: skip
    assert [row["kept"] for row in result.history] == kept_by_paper
    for name, value in model.state_dict().items():
        torch.testing.assert_close(result.model.state_dict()[name], value)


def dropped(plan: Plan) -> list[int]:
    return torch.nonzero(~plan.kept).flatten().tolist()


RISING = list(range(10))
FALLING = RISING[::-1]


def test_nothing_is_probed_or_dropped_in_the_warm_up():
    run = Run(rho_max=0.5, warmup=4, schedule="linear")
    assert [run.method.wants_probe(epoch) for epoch in range(10)] == [False] * 4 + [True] * 6
    assert all(run.epoch(epoch, RISING).kept.all() for epoch in range(4))
    assert run.ledger["times_probed"].eq(0).all()


def test_the_highest_losses_go_a_few_more_each_epoch():
    run = Run(rho_max=0.6, warmup=4, schedule="linear")
    plans = [run.epoch(epoch, RISING) for epoch in range(10)]
    assert [dropped(plan) for plan in plans[4:]] == [[], [9], [8, 9], [7, 8, 9], [6, 7, 8, 9], [5, 6, 7, 8, 9]]
    assert [plan.cut for plan in plans[4:]] == [9, 8, 7, 6, 5, 4]
    assert plans[9].drop_fraction == pytest.approx(0.5)


def test_a_sample_comes_back_when_its_loss_does():
    run = Run(rho_max=0.3, warmup=0, ramp_end=0)
    assert dropped(run.epoch(0, RISING)) == [7, 8, 9]
    assert dropped(run.epoch(1, FALLING)) == [0, 1, 2]


def test_sticky_drops_are_for_ever():
    run = Run(rho_max=0.5, warmup=0, ramp_end=5, sticky=True)
    seen: set[int] = set()
    for epoch, losses in enumerate([RISING, RISING, RISING, FALLING, FALLING, FALLING]):
        now = set(dropped(run.epoch(epoch, losses)))
        assert seen <= now
        assert len(now) == epoch
        seen = now
    assert seen == {0, 1, 2, 8, 9}


def test_memory_lets_only_persistently_high_losses_count():
    spike = [9.0, *RISING[1:8], 7.5, 8.0]
    forgetful, patient = Run(rho_max=0.1, warmup=0, ramp_end=0), Run(rho_max=0.1, warmup=0, ramp_end=0, memory=0.8)
    for run in (forgetful, patient):
        run.epoch(0, RISING)
    assert dropped(forgetful.epoch(1, spike)) == [0]
    assert dropped(patient.epoch(1, spike)) == [9]
    assert patient.ledger["score"][0] == pytest.approx(0.8 * 0 + 0.2 * 9)
    assert patient.ledger["loss"][0] == 9


def test_losses_that_are_not_finite_go_first_and_are_counted():
    losses = [0.1, float("nan"), 0.2, float("inf"), *range(6)]
    plan = Run(rho_max=0.3, warmup=0, ramp_end=0).epoch(0, losses)
    assert dropped(plan) == [1, 3, 9]
    assert plan.nonfinite == 2


def test_a_sticky_run_counts_only_the_losses_that_are_not_finite():
    run = Run(rho_max=0.3, warmup=0, ramp_end=0, sticky=True)
    run.epoch(0, RISING)
    assert run.epoch(1, RISING).nonfinite == 0


def test_softness_weights_instead_of_dropping():
    plan = Run(rho_max=0.3, warmup=0, ramp_end=0, softness=1.0).epoch(0, RISING)
    assert dropped(plan) == [7, 8, 9]
    assert plan.trains is not None
    assert plan.trains.all()
    expected = torch.sigmoid(6.5 - torch.arange(10.0))
    torch.testing.assert_close(plan.weight, expected)


def test_min_keep_protects_every_class_and_reports_the_shortfall():
    losses = [10.0 + i if i % 2 else float(i) for i in range(10)]  # class 1 has all the high losses
    plan = Run(rho_max=0.4, warmup=0, ramp_end=0, min_keep=0.6).epoch(0, losses)
    assert dropped(plan) == [7, 9]
    assert plan.shortfall == 2


def test_groups_replace_classes_in_min_keep():
    groups = torch.tensor([0] * 5 + [1] * 5)
    plan = Run(rho_max=0.5, warmup=0, ramp_end=0, min_keep=0.4, groups=groups).epoch(0, RISING)
    assert dropped(plan) == [7, 8, 9]
    assert plan.shortfall == 2


@pytest.mark.parametrize(("rho_max", "kept"), [(None, 30), (0.4, 0)])
def test_a_rare_class_the_model_never_names_is_not_flagged_and_dropped_only_if_so_many_are_asked_for(rho_max, kept):
    labels = torch.where(torch.arange(300) < 270, torch.arange(300) % 2, 2)
    predicted = torch.where(labels == 2, torch.arange(300) // 3 % 2, labels)
    predicted[:30] = (labels[:30] + 1) % 2
    guess = torch.where(F.one_hot(predicted, 3).bool(), 0.9, 0.05)
    task = Task(labels, 3, epochs=6, seed=0, criterion=unreduced, probe="cross:2")
    method, ledger = make_method("step-e", rho_max=rho_max, schedule="early", warmup=2), Ledger(300)
    method.start(task, ledger)
    for epoch in range(6):
        if method.wants_probe(epoch):
            method.observe(epoch, Observation(torch.zeros(300), probability=guess, judged_by="others"), ledger)
        plan = method.plan(epoch, ledger)
        ledger.record_selection(plan.kept)
    belief = method.make_belief(ledger)
    flagged = torch.from_numpy(belief.flagged)
    assert plan.kept[labels == 2].sum() == kept
    assert not flagged[labels == 2].any()
    assert not plan.kept[:30][labels[:30] != 2].any()
    assert flagged[:30][labels[:30] != 2].all()
    assert belief.hardly_recognised == [2]


def test_the_state_holds_the_resolved_rho_max():
    run = Run(rho_max=0.3)
    other = Run(rho_max=0.1)
    other.method.load_state_dict(run.method.state_dict())
    assert [other.method.dropping.share(e) for e in range(10)] == [run.method.dropping.share(e) for e in range(10)]


# Step-E at rho = 0 is plain training


def jitter(x: Tensor, index: Tensor, stream: Stream) -> Tensor:
    return x + 0.3 * stream.normal(index).view(-1, *[1] * (x.ndim - 1))


def convolutional(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Unflatten(1, (1, 2, 3)),
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Dropout2d(0.3),
            nn.Flatten(),
            nn.Linear(24, 3),
        )


@pytest.mark.parametrize("view", ["augmented", "plain"])
@pytest.mark.parametrize("kind", ["tensors", "augmented tensors", "data set"])
@pytest.mark.parametrize("network", ["dense", "convolutional"])
@pytest.mark.parametrize(
    "options",
    [{}, {"memory": 0.5, "sticky": True}, {"softness": 0.4, "min_keep": 0.3}, {"warmup": 0, "schedule": "early"}],
    ids=["default", "sticky", "soft", "no warm-up"],
)
def test_at_rho_zero_it_is_plain_training_bit_for_bit(view, kind, network, options, blobs, make_model, bits):
    data: dict[str, Any] = {"data": blobs.x}
    if kind == "augmented tensors":
        data["augment"] = jitter
    elif kind == "data set":
        data = {"data": Jittered(blobs.x, blobs.given), "plain_view": list(blobs.x)}

    def run(method: str, **method_options: Any) -> Result:
        return stepe.fit(
            make_model() if network == "dense" else convolutional(),
            labels=blobs.given,
            method=method,
            epochs=3,
            batch_size=16,
            device="cpu",
            **data,
            **method_options,
        )

    plain, stepwise = run("plain"), run("step-e", rho_max=0.0, view=view, **options)
    assert sum(row["probed"] for row in stepwise.history) >= 2
    assert bits(plain.model) == bits(stepwise.model)


@pytest.mark.parametrize(
    ("method", "options"), [("one-shot", {"rho_max": 0.0}), ("self-paced", {"keep_start": 1.0}), ("oracle", {})]
)
def test_so_are_the_other_methods_that_drop_nothing(method, options, blobs, make_model, bits):
    runs = [
        stepe.fit(make_model(), blobs.x, blobs.given, method=made, epochs=3, batch_size=16, device="cpu")
        for made in (METHODS["plain"](), make_method(method, **options))
    ]
    assert bits(runs[0].model) == bits(runs[1].model)
