"""What every method promises, checked for every method of the registry and every option that changes the path."""

import copy
import io
import math
import random
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

import stepe
from jittered import Jittered
from stepe.engine.eager import EagerEngine
from stepe.engine.learning_rate import ProgressRate, constant
from stepe.loop.ledger import Ledger, Observation
from stepe.loop.plan import Plan
from stepe.methods import METHODS, Batch, Forward, Method, Task, make_method
from stepe.samples.samples import TensorSamples
from stepe.training.building import Result, Silent, Training
from stepe.training.session import Row

EPOCHS = 6

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    name: (name, {"rho_max": 0.3} if "rho_max" in kind.options() else {}) for name, kind in METHODS.items()
} | {
    f"{method} {label}": (method, {"rho_max": 0.3, **options})
    for method, label, options in (
        ("step-e", "sticky", {"sticky": True}),
        ("step-e", "memory", {"memory": 0.7}),
        ("step-e", "soft", {"softness": 0.3}),
        ("step-e", "min_keep", {"min_keep": 0.8}),
        ("step-e", "linear", {"schedule": "linear"}),
        ("step-e", "early", {"schedule": "early"}),
        ("step-e", "proportional", {"rho_max": "auto", "warmup": "auto", "schedule": "proportional"}),
        ("step-e", "own schedule", {"schedule": math.sqrt}),
        ("step-e", "no warm-up", {"warmup": 0, "ramp_end": 2}),
        ("step-e", "everything", {"sticky": True, "memory": 0.5, "softness": 0.2, "min_keep": 0.5}),
        ("step-e", "auto", {"rho_max": "auto"}),
        ("step-e", "auto, probed in the warm-up", {"rho_max": "auto", "warmup": 2}),
        ("step-e", "auto warm-up", {"rho_max": "auto", "warmup": "auto"}),
        ("step-e", "guess", {"score": "guess"}),
        ("step-e", "posterior", {"score": "posterior"}),
        ("step-e-plus", "auto", {"rho_max": "auto", "warmup": "auto"}),
        ("step-e-plus", "posterior", {"score": "posterior", "prior": "none"}),
        ("step-e-plus", "no blends", {"mixup": 0.0, "prior": "given"}),
        ("step-e-plus", "nothing", {"score": "loss", "average": 0, "correct": False, "refine": 0, "mixup": 0}),
        ("one-shot", "auto", {"rho_max": "auto"}),
        ("one-shot", "soft", {"softness": 0.3}),
        ("one-shot", "min_keep", {"min_keep": 0.8}),
        ("truncation", "first-epoch", {"threshold": "first-epoch"}),
        ("co-teaching", "at once", {"ramp": 1}),
        ("co-teaching", "auto", {"rho_max": "auto"}),
    )
}


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    return request.param


def build(variant: str) -> Method:
    method, options = VARIANTS[variant]
    return make_method(method, **options)


def fit(variant: str, model: nn.Module, data: Any, labels: Any, **options: Any) -> Result:
    options = {"epochs": EPOCHS, "batch_size": 16, "device": "cpu", "seed": 3} | options
    return stepe.fit(model, data, labels, method=build(variant), **options)


def rows(result: Result) -> list[Row]:
    """The history without its clock."""
    return [{key: value for key, value in row.items() if not key.endswith("seconds")} for row in result.history]


def same_ledger(one: Ledger, other: Ledger) -> bool:
    columns, others = one.state_dict(), other.state_dict()
    return columns.keys() == others.keys() and all(
        torch.equal(torch.nan_to_num(columns[name].double(), nan=-7), torch.nan_to_num(others[name].double(), nan=-7))
        for name in columns
    )


class Recording(Dataset[tuple[Tensor, int]]):
    """Notes down what is read from it."""

    def __init__(self, x: Tensor, y: Tensor):
        self.x, self.y = x, y
        self.read: list[int] = []

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        self.read.append(index)
        return self.x[index], int(self.y[index])


def test_history_ledger_and_summary_agree(variant, blobs, make_model):
    result = fit(variant, make_model(), blobs.x, blobs.given, truth=blobs.truth, test=(blobs.x, blobs.clean))
    history, ledger, n = result.history, result.ledger, len(blobs.x)
    assert [row["epoch"] for row in history] == list(range(EPOCHS))
    assert all(row["kept"] + row["dropped"] == n for row in history)
    assert all(math.isfinite(row["train_loss"]) for row in history)
    assert history[-1]["dropped"] == result.summary.dropped == int(ledger["dropped"].sum())
    assert sum(row["dropped"] for row in history) == int(ledger["drop_count"].sum())
    changes = [row["went"] - row["came"] for row in history]
    assert np.cumsum(changes).tolist() == [row["dropped"] for row in history]
    probes = sum(row["probed"] for row in history) + 1
    assert ledger["times_probed"].eq(probes).all()
    assert torch.isfinite(ledger["loss"]).all()
    assert result.summary.test_accuracy > 0.8


def test_the_same_seed_gives_the_same_bits(variant, blobs, make_model, bits):
    one, other = (fit(variant, make_model(), blobs.x, blobs.given, truth=blobs.truth) for _ in range(2))
    assert bits(one.model) == bits(other.model)
    assert same_ledger(one.ledger, other.ledger)
    assert rows(one) == rows(other)


def test_another_seed_gives_another_run(variant, blobs, make_model, bits):
    one, other = (fit(variant, make_model(), blobs.x, blobs.given, seed=seed) for seed in (3, 4))
    assert bits(one.model) != bits(other.model)


def test_the_truth_changes_no_weight(variant, blobs, make_model, bits):
    shuffled = blobs.clean[torch.randperm(len(blobs.clean), generator=torch.Generator().manual_seed(0))]
    truths = (None, blobs.truth, stepe.Truth.from_labels(blobs.given, shuffled))
    results = [fit(variant, make_model(), blobs.x, blobs.given, truth=truth) for truth in truths]
    assert len({bits(result.model) for result in results}) == 1
    assert all(same_ledger(results[0].ledger, result.ledger) for result in results)
    found = [result.training.method.state_dict().get("rho_max") for result in results]
    assert found[0] == found[1] == found[2]
    assert results[1].summary.noise != results[2].summary.noise


def test_the_number_of_workers_changes_nothing(variant, blobs, make_model, bits):
    data = Jittered(blobs.x, blobs.given)
    runs = [
        fit(variant, make_model(), data, None, epochs=3, loader_options={"num_workers": workers}) for workers in (0, 2)
    ]
    assert bits(runs[0].model) == bits(runs[1].model)
    assert same_ledger(runs[0].ledger, runs[1].ledger)


def test_tensors_and_a_data_set_of_the_same_samples_train_alike(variant, blobs, make_model, bits):
    pairs = list(zip(blobs.x, blobs.given.tolist(), strict=True))
    from_tensors = fit(variant, make_model(), blobs.x, blobs.given)
    from_pairs = fit(variant, make_model(), pairs, None)
    assert bits(from_tensors.model) == bits(from_pairs.model)
    assert same_ledger(from_tensors.ledger, from_pairs.ledger)


def test_the_users_generators_neither_move_nor_matter(variant, blobs, make_model, bits):
    data, results = Jittered(blobs.x, blobs.given), []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        before = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
        results.append(fit(variant, make_model(), data, None, epochs=3))
        assert torch.equal(torch.get_rng_state(), before[0])
        np.testing.assert_equal(np.random.get_state(), before[1])  # noqa: NPY002
        assert random.getstate() == before[2]
    assert bits(results[0].model) == bits(results[1].model)


def test_only_training_moves_the_model(variant, blobs, make_model, bits):
    class AfterEpochs(Silent):
        def epoch_ended(self, training: Training, row: Row) -> None:
            self.bits = bits(training.engine.judge_model)

    after = AfterEpochs()
    result = fit(variant, make_model(), blobs.x, blobs.given, test=(blobs.x, blobs.clean), observers=(after,))
    assert result.ledger["times_probed"].gt(0).all()
    assert bits(result.training.model) == after.bits


def test_every_kept_sample_is_read_for_training_once_an_epoch(variant, blobs, make_model):
    class Reads(Silent):
        def __init__(self) -> None:
            self.epochs: list[tuple[list[int], Tensor]] = []

        def epoch_ended(self, training: Training, row: Row) -> None:
            self.epochs.append((train.read, ~training.ledger["dropped"]))
            train.read = []

    # The probe reads another data set than training, so that the two cannot be confused.
    train, probed = Recording(blobs.x, blobs.given), Recording(blobs.x, blobs.given)
    method, reads = build(variant), Reads()
    method.view = "plain"
    stepe.fit(
        make_model(),
        train,
        blobs.given,
        method=method,
        plain_view=probed,
        epochs=EPOCHS,
        batch_size=16,
        device="cpu",
        observers=(reads,),
    )
    more = getattr(method, "softness", 0) > 0 or getattr(method, "correct", False)
    assert len(reads.epochs) == EPOCHS
    for read, kept in reads.epochs:
        expected = torch.nonzero(kept).flatten().tolist()
        assert len(read) == len(set(read))
        assert set(expected) <= set(read) if more else sorted(read) == expected
    assert sorted(set(probed.read)) == list(range(len(blobs.x)))


def toy_task(x: Tensor, labels: Tensor) -> Task:
    def criterion(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, reduction="none")

    return Task(labels, classes=3, epochs=EPOCHS, seed=3, criterion=criterion)


def dropping_plan(variant: str, task: Task) -> tuple[Method, Plan] | None:
    """The method and its first plan that leaves somebody out altogether, if it ever does."""
    method, ledger = build(variant), Ledger(task.n)
    method.start(task, ledger)
    draw = torch.Generator().manual_seed(1)
    losses = torch.rand(task.n, generator=draw)
    drawn = torch.randn(task.n, task.classes, generator=draw)
    seen = torch.where(torch.arange(task.n) % 5 == 0, (task.labels + 1) % task.classes, task.labels)
    probability = (5 * F.one_hot(seen, task.classes) + drawn).softmax(1)
    for epoch in range(EPOCHS):
        if method.wants_probe(epoch):
            method.observe(epoch, Observation(losses, probability=probability), ledger)
        plan = method.plan(epoch, ledger)
        if not (plan.kept if plan.trains is None else plan.trains).all():
            return method, plan
        ledger.record_selection(plan.kept)
    return None


DROPPING = [name for name in VARIANTS if dropping_plan(name, toy_task(torch.zeros(97, 6), torch.arange(97) % 3))]


def test_the_methods_that_should_drop_do():
    assert {"step-e", "one-shot", "self-paced", "margins"} <= set(DROPPING)
    assert not {"plain", "oracle", "truncation", "step-e soft"} & set(DROPPING)


@pytest.mark.parametrize("variant", DROPPING)
def test_no_label_of_a_dropped_sample_reaches_a_gradient(variant, blobs, make_model, bits):
    found = dropping_plan(variant, toy_task(blobs.x, blobs.given))
    assert found is not None
    method, plan = found
    trains = plan.kept if plan.trains is None else plan.trains

    def train_with(labels: Tensor) -> bytes:
        model, task = make_model(), toy_task(blobs.x, labels)
        method.task = task
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        engine = EagerEngine(
            model,
            TensorSamples(blobs.x),
            task,
            optimizer=optimizer,
            rate=ProgressRate(optimizer, constant),
            device=torch.device("cpu"),
            batch_size=16,
            probe_batch_size=32,
        )
        engine.train(plan, method)
        return bits(model)

    as_given = train_with(blobs.given)
    others = (blobs.given + 1) % 3
    assert train_with(torch.where(trains, blobs.given, others)) == as_given
    one_kept = blobs.given.clone()
    one_kept[torch.nonzero(trains)[0]] = others[torch.nonzero(trains)[0]]
    assert train_with(one_kept) != as_given


class Snapshot(Silent):
    """Keeps what a checkpoint would hold, through ``torch.save`` and a load that unpickles nothing freely."""

    def __init__(self, epoch: int):
        self.epoch = epoch

    def epoch_ended(self, training: Training, row: Row) -> None:
        if training.epoch == self.epoch:
            self.content = io.BytesIO()
            parts = (training.model, training.engine, training.method, training.ledger)
            torch.save(([part.state_dict() for part in parts], training.history), self.content)


class Restored(Silent):
    """Puts a snapshot back where a run folder would."""

    def __init__(self, snapshot: Snapshot):
        self.snapshot = snapshot

    def run_started(self, training: Training) -> None:
        self.snapshot.content.seek(0)
        states, training.session.history = torch.load(self.snapshot.content, weights_only=True)
        parts = (training.model, training.engine, training.method, training.ledger)
        for part, state in zip(parts, states, strict=True):
            part.load_state_dict(state)


def test_a_restored_state_goes_on_as_if_never_interrupted(variant, blobs, make_model, bits):
    snapshot = Snapshot(3)
    whole = fit(variant, make_model(), blobs.x, blobs.given, truth=blobs.truth, observers=(snapshot,))
    resumed = fit(variant, make_model(seed=9), blobs.x, blobs.given, truth=blobs.truth, observers=(Restored(snapshot),))
    assert bits(whole.model) == bits(resumed.model)
    assert same_ledger(whole.ledger, resumed.ledger)
    assert rows(whole) == rows(resumed)


def test_a_method_is_as_good_as_new_in_a_second_run(variant, blobs, make_model, bits):
    method = build(variant)
    runs = [
        stepe.fit(make_model(), blobs.x, blobs.given, method=method, epochs=3, batch_size=16, device="cpu")
        for _ in range(2)
    ]
    assert bits(runs[0].model) == bits(runs[1].model)


@dataclass
class Bootstrapped(Method):
    """A method nobody has heard of: trains on a blend of the given labels and its own running guess."""

    name: ClassVar[str] = "bootstrapped"
    summary: ClassVar[str] = "trains on what it believes"
    needs_probabilities: ClassVar[bool] = True

    trust: float = 0.6

    def start(self, task: Task, ledger: Ledger) -> None:
        super().start(task, ledger)
        ledger.add_column("guess", torch.float16, 1 / task.classes, width=task.classes)
        self.seen: list[int] = []

    def wants_probe(self, epoch: int) -> bool:
        return epoch % 2 == 1

    def observe(self, epoch: int, seen: Observation, ledger: Ledger) -> None:
        super().observe(epoch, seen, ledger)
        assert seen.probability is not None
        ledger["guess"] = 0.5 * ledger["guess"] + 0.5 * seen.probability

    def plan(self, epoch: int, ledger: Ledger) -> Plan:
        given = F.one_hot(self.task.labels, self.task.classes)
        guess = ledger["guess"].float()
        target = self.trust * given + (1 - self.trust) * guess / guess.sum(1, keepdim=True)
        certain = target.amax(1) > 0.5
        return replace(super().plan(epoch, ledger), kept=certain, trains=torch.ones_like(certain), target=target)

    def loss(self, forward: Forward, batch: Batch) -> Tensor:
        self.seen.append(len(batch.y))
        assert batch.target.shape == (len(batch.y), self.task.classes)
        return batch.mean(-(batch.target * F.log_softmax(forward(batch.x), 1)).sum(1))

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


def test_a_new_method_runs_without_touching_the_library(blobs, make_model, bits):
    def run(method: Method, **options: Any) -> Result:
        return stepe.fit(
            make_model(), blobs.x, blobs.given, method=method, epochs=4, batch_size=16, device="cpu", **options
        )

    method, snapshot = Bootstrapped(), Snapshot(2)
    result = run(method, test=(blobs.x, blobs.clean), observers=(snapshot,))
    assert sum(method.seen) == 4 * len(blobs.x)
    assert [row["probed"] for row in result.history] == [False, True, False, True]
    assert result.ledger["guess"].dtype == torch.float16
    assert result.summary.method == "bootstrapped"
    assert result.summary.test_accuracy > 0.8

    again = copy.deepcopy(method)
    resumed = run(again, observers=(Restored(snapshot),))
    assert bits(resumed.model) == bits(result.model)
    assert again.seen == method.seen
    assert bits(run(Bootstrapped(trust=1.0)).model) != bits(result.model)


def test_soft_targets_that_are_the_labels_train_like_the_labels(blobs, make_model):
    class OneHot(METHODS["plain"]):
        def plan(self, epoch: int, ledger: Ledger) -> Plan:
            return replace(super().plan(epoch, ledger), target=F.one_hot(self.task.labels, 3).float())

    def train(method: Method) -> dict[str, Tensor]:
        return stepe.fit(make_model(), blobs.x, blobs.given, method=method, epochs=2, device="cpu").model.state_dict()

    torch.testing.assert_close(train(OneHot()), train(METHODS["plain"]()))
