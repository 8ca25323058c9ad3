"""One session begins and ends the epochs of every training, and every history has the same row."""

from dataclasses import replace

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.utils.data import TensorDataset

import stepe
from stepe import RunError
from stepe.loop.ledger import Ledger, Observation
from stepe.methods import Plain, StepwiseElimination, Task
from stepe.training.building import cross_entropy
from stepe.training.session import Session

ROW = {
    *("epoch", "probed", "drop_fraction", "kept", "dropped", "came", "went", "cut", "nonfinite", "shortfall"),
    *("probe_seconds", "seconds"),
}
LABELS = torch.arange(10) % 2


def session(method: Plain | StepwiseElimination, weight: torch.Tensor | None = None) -> Session:
    task = Task(LABELS, 2, epochs=4, seed=0, criterion=cross_entropy(2), weight=weight)
    made = Session(task, method, Ledger(task.n))
    method.start(task, made.ledger)
    return made


def test_epochs_are_planned_and_written_down_one_after_the_other():
    made = session(StepwiseElimination(rho_max=0.4, warmup=1, schedule="linear"))
    assert not made.wants_probe()
    assert made.begin_epoch().kept.all()
    assert made.end_epoch(train_loss=2.0)["train_loss"] == 2.0
    assert made.plan is None
    for epoch in range(1, 4):
        assert made.epoch == epoch
        assert made.wants_probe()
        made.observe(epoch, Observation(torch.arange(10.0)))
        kept = made.begin_epoch().kept
        assert made.plan.epoch == epoch
        assert torch.equal(made.ledger["dropped"], ~kept)
        row = made.end_epoch()
        assert (row["epoch"], row["probed"], row["dropped"]) == (epoch, True, int((~kept).sum()))
    assert [row["epoch"] for row in made.history] == list(range(4))
    assert made.history[-1]["went"] > 0
    assert made.history[-1]["cut"] == kept.nonzero().max()
    assert all(set(row) - {"train_loss"} == ROW for row in made.history)


def test_what_was_measured_later_goes_into_the_row():
    made = session(Plain())
    made.wants_probe()
    made.begin_epoch()
    made.end_epoch()["test_accuracy"] = 0.9
    assert made.history[0]["test_accuracy"] == 0.9


def test_how_much_a_sample_counts_goes_into_the_plan():
    weight = torch.arange(10.0)
    made = session(Plain(), weight)
    made.wants_probe()
    assert torch.equal(made.begin_epoch().weight, weight)


def test_losses_that_are_no_numbers_and_plans_without_samples_are_refused():
    made = session(StepwiseElimination(rho_max=0.4, warmup=0))
    with pytest.raises(RunError, match="every loss is NaN or infinite before epoch 0; lower the learning rate"):
        made.observe(0, Observation(torch.full((10,), torch.nan)))

    class Nothing(Plain):
        def plan(self, epoch, ledger):
            return replace(super().plan(epoch, ledger), kept=torch.zeros(10, dtype=torch.bool))

    empty = session(Nothing())
    empty.wants_probe()
    with pytest.raises(RunError, match="epoch 0 would train on nothing; lower rho_max"):
        empty.begin_epoch()


def test_every_door_of_a_training_has_the_same_row_and_rounds_tell_what_they_have_in_common():
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    y = torch.arange(20) % 2
    fitted = stepe.fit(torch.nn.Linear(3, 2), x, y, epochs=2, rho_max=0.2, device="cpu").history
    cleaner, model = stepe.StepE(TensorDataset(x, y), epochs=2, rho_max=0.2), torch.nn.Linear(3, 2)
    loader = cleaner.loader(4)
    for _ in cleaner.epochs(model):
        list(loader)
    rounds = stepe.StepEClassifier(LogisticRegression(), rounds=2).fit(x.numpy(), y.numpy()).history_
    assert all(set(row) == ROW for row in cleaner.history)
    assert all(set(row) == ROW | {"train_loss", "learning_rate"} for row in fitted)
    assert all(set(row) - ROW == {"noise_rate", "judge"} for row in rounds)  # judges have no losses to tell of
    assert (len(fitted), len(cleaner.history)) == (2, 2)
    assert 1 <= len(rounds) <= 2
