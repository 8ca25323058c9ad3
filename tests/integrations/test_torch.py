"""Step-E inside a training loop of one's own."""

import random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from shrinking import Recorded
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

import stepe
from jittered import Jittered
from stepe import InputError, RunError, StepE
from stepe.beliefs.issues import COLUMNS
from stepe.engine.learning_rate import cosine
from stepe.methods import StepEPlus

EPOCHS, BATCH = 5, 16


class Numbered(Dataset[tuple[Tensor, int, int]]):
    """Brings its index along."""

    def __init__(self, x: Tensor, y: Tensor):
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, int, int]:
        return self.x[index], int(self.y[index]), index


@pytest.fixture
def model() -> nn.Module:
    """Without dropout, which draws from the loop's own generator."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


@pytest.fixture
def data(blobs) -> Numbered:
    return Numbered(blobs.x, blobs.given)


def train(cleaner: StepE, loader: DataLoader[Any], model: nn.Module, **options: Any) -> list[list[int]]:
    """A loop as people write it; returns the samples of each epoch, if the data brings their index."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    seen = []
    for _ in cleaner.epochs(model, **options):
        seen.append([])
        for x, y, *index in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            seen[-1] += index[0].tolist() if index else []
    return seen


# ---------------------------------------------------------------------------------------------------------------
# What the loop sees


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_workers": 2},
        {"num_workers": 2, "persistent_workers": False},
        {"num_workers": 1, "prefetch_factor": 1, "collate_fn": torch.utils.data.default_collate},
    ],
    ids=["no workers", "workers", "workers made anew", "options"],
)
def test_every_kept_sample_comes_once_an_epoch(data, model, options):
    cleaner = StepE(data, epochs=EPOCHS, rho_max=0.3, warmup=2)
    loader = cleaner.loader(batch_size=BATCH, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    orders = []
    for epoch in cleaner.epochs(model):
        batches = []
        for x, y, index in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            batches.append(index)
        seen = torch.cat(batches)
        kept = torch.nonzero(cleaner.plan.kept).flatten()
        assert seen.sort().values.tolist() == kept.tolist()
        assert len(loader) == len(batches)
        assert torch.equal(~cleaner.ledger["dropped"], cleaner.plan.kept)
        assert epoch >= 2 or len(kept) == 97
        orders.append(seen.tolist())
    assert len(orders) == EPOCHS
    assert orders[0] != orders[1]
    assert len(orders[-1]) == 97 - int(0.3 * 97)
    assert [row["kept"] for row in cleaner.history] == [len(order) for order in orders]
    assert [row["epoch"] for row in cleaner.history] == list(range(EPOCHS))
    assert [row["probed"] for row in cleaner.history] == [False, False, True, True, True]


def test_workers_change_nothing(blobs, bits):
    weights = []
    for workers in (0, 2):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
        cleaner = StepE(Jittered(blobs.x, blobs.given), epochs=EPOCHS, rho_max=0.3)
        train(cleaner, cleaner.loader(batch_size=BATCH, num_workers=workers), network)
        weights.append(bits(network))
    assert weights[0] == weights[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_dropped_samples_are_not_fetched_for_training(blobs, model, workers):
    # The probe reads another data set, so that the two cannot be confused.
    training, probed = Recorded(blobs.x, blobs.given), Recorded(blobs.x, blobs.given)
    cleaner = StepE(training, epochs=EPOCHS, rho_max=0.3, warmup=1, view="plain", plain_view=probed, labels=blobs.given)
    loader = cleaner.loader(batch_size=BATCH, num_workers=workers)
    for _ in cleaner.epochs(model):
        before = training.fetched.clone()
        for _ in loader:
            pass
        assert torch.equal(training.fetched - before, cleaner.plan.kept.long())
    assert probed.fetched.tolist() == [EPOCHS] * 97  # four probes and the last word


def test_the_kept_sets_and_the_weights_are_those_of_fit(blobs, bits):
    def network() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))

    class Kept:
        sets: list[Tensor] = []  # noqa: RUF012

        def run_started(self, training) -> None: ...

        def epoch_ended(self, training, row) -> None:
            self.sets.append(~training.ledger["dropped"].clone())

        def run_ended(self, result) -> None: ...

    options = {"rho_max": 0.3, "memory": 0.2, "seed": 4, "epochs": EPOCHS}
    data, reference = Jittered(blobs.x, blobs.given), network()
    fitted = stepe.fit(
        reference, data, batch_size=BATCH, probe_batch_size=64, device="cpu", observers=(Kept(),), **options
    )

    mine, cleaner = network(), StepE(data, **options)
    loader = cleaner.loader(batch_size=BATCH, num_workers=2)
    optimizer = torch.optim.SGD(mine.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    for epoch, kept in zip(cleaner.epochs(mine, probe_batch_size=64), Kept.sets, strict=True):
        assert torch.equal(cleaner.plan.kept, kept)
        for step, (x, y) in enumerate(loader):
            optimizer.param_groups[0]["lr"] = 0.1 * cosine((epoch + step / len(loader)) / EPOCHS)
            optimizer.zero_grad()
            (F.cross_entropy(mine(x), y, reduction="none").sum() / len(y)).backward()
            optimizer.step()
    assert not Kept.sets[-1].all()
    assert bits(mine) == bits(reference)
    for name, column in fitted.ledger.state_dict().items():
        torch.testing.assert_close(cleaner.ledger[name], column, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_loops_own_generators_are_not_moved(blobs, model, workers):
    cleaner = StepE(Jittered(blobs.x, blobs.given), epochs=3, rho_max=0.3, warmup=1)
    loader = cleaner.loader(batch_size=BATCH, num_workers=workers)
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    for _ in cleaner.epochs(model):
        for _ in loader:
            pass
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_equal(np.random.get_state(), before[1])  # noqa: NPY002
    assert random.getstate() == before[2]


def test_the_probe_leaves_the_model_as_it_was(data, model, bits):
    cleaner = StepE(data, epochs=2, rho_max=0.3, warmup=0)
    model[1].eval()
    before = bits(model)
    for _ in cleaner.epochs(model):
        assert bits(model) == before
        assert model.training
        assert not model[1].training
    assert bits(model) == before


def test_a_batch_larger_than_the_data_is_the_data(data, model):
    cleaner = StepE(data, epochs=1, rho_max=0.3, warmup=0)
    loader = cleaner.loader(batch_size=1000)
    for _ in cleaner.epochs(model):
        assert [len(x) for x, _, _ in loader] == [int(cleaner.plan.kept.sum())]


def test_a_loss_of_ones_own_is_what_counts(data, model):
    def forward(model: nn.Module, batch: Any) -> Tensor:
        _, _, index = batch
        return index.float()

    cleaner = StepE(data, epochs=3, rho_max=0.3, warmup=1)
    train(cleaner, cleaner.loader(batch_size=BATCH), model, forward=forward)
    dropped = torch.nonzero(cleaner.ledger["dropped"]).flatten()
    assert dropped.tolist() == list(range(97 - 29, 97))
    assert set(cleaner.issues["suggested_label"]) == {""}


def test_a_forward_may_bring_its_logits(data, model, blobs):
    def forward(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        x, y, _ = batch
        logits = model(x)
        return F.cross_entropy(logits, y, reduction="none"), logits

    cleaner = StepE(data, epochs=3, rho_max=0.3, warmup=1)
    train(cleaner, cleaner.loader(batch_size=BATCH), model, forward=forward)
    assert cleaner.ledger["prediction"].min() >= 0


# ---------------------------------------------------------------------------------------------------------------
# Issues


def test_issues_have_the_columns_of_a_run_and_are_ranked(data, model, blobs):
    ids = [f"sample {i}" for i in range(97)]
    cleaner = StepE(data, epochs=EPOCHS, rho_max=0.3, class_names=["ant", "bee", "cat"], ids=ids)
    train(cleaner, cleaner.loader(batch_size=BATCH), model)
    issues = cleaner.issues
    assert tuple(issues.columns) == COLUMNS
    assert 0 < len(issues) <= int(cleaner.ledger["dropped"].sum())
    assert issues["rank"].tolist() == list(range(1, len(issues) + 1))
    assert issues["suspicion"].is_monotonic_decreasing
    assert issues["flagged"].all()
    assert issues["dropped"].all()
    names = ["ant", "bee", "cat"]
    for issue in issues.to_dict("records"):
        assert issue["id"] == f"sample {issue['row']}"
        assert issue["given_label"] == names[blobs.given[issue["row"]]]
        assert issue["suggested_label"] != issue["given_label"]
    wrong = blobs.given != blobs.clean
    assert wrong[issues["row"].tolist()].double().mean() > 0.7


def test_issues_before_any_probe_are_an_error(data, model):
    cleaner = StepE(data, epochs=2, rho_max=0.3)
    with pytest.raises(
        RunError, match=r"nothing has been probed yet; run your loop over cleaner.epochs\(model\) first"
    ):
        _ = cleaner.issues


# ---------------------------------------------------------------------------------------------------------------
# What is refused


def test_without_a_rate_it_is_found_out(data, make_model):
    cleaner = StepE(data, epochs=8, warmup=3)
    train(cleaner, cleaner.loader(batch_size=BATCH), make_model())
    found = cleaner.method.make_belief(cleaner.ledger).found_rate
    assert found is not None
    assert 0 <= found.low <= found.rate <= found.high <= 1
    assert 0 < cleaner.method.dropping.rho_max <= found.high
    assert StepE(data, epochs=EPOCHS, noise_rate=0.2).method.dropping.rho_max == pytest.approx(0.25)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_outside_of_the_epochs_is_an_error(data, model, workers):
    cleaner = StepE(data, epochs=2, rho_max=0.3)
    loader = cleaner.loader(batch_size=BATCH, num_workers=workers)
    complaint = r"no epoch is on; iterate over the loader inside `for epoch in cleaner.epochs\(model\):`"
    with pytest.raises(RunError, match=complaint):
        next(iter(loader))
    train(cleaner, loader, model)
    with pytest.raises(RunError, match=complaint):
        next(iter(loader))


def test_a_loop_that_was_left_is_no_epoch_either_and_can_be_taken_up(data, model):
    cleaner = StepE(data, epochs=3, rho_max=0.3)
    loader = cleaner.loader(batch_size=BATCH)
    for epoch in cleaner.epochs(model):
        if epoch == 1:
            break
    with pytest.raises(RunError, match="no epoch is on"):
        next(iter(loader))
    assert list(cleaner.epochs(model)) == [1, 2]
    assert [row["epoch"] for row in cleaner.history] == [0, 1, 2]


@pytest.mark.parametrize("option", ["shuffle", "batch_sampler", "drop_last", "generator"])
def test_options_that_would_choose_the_samples_are_refused(data, option):
    cleaner = StepE(data, epochs=2, rho_max=0.3)
    with pytest.raises(InputError, match=f"leave the loader options {option} out: batches follow the plan"):
        cleaner.loader(batch_size=BATCH, **{option: True})


@pytest.mark.parametrize("batch_size", [0, -1, None, 2.5])
def test_a_batch_size_that_is_none_is_refused(data, batch_size):
    with pytest.raises(InputError, match="the batch size is"):
        StepE(data, epochs=2, rho_max=0.3).loader(batch_size=batch_size)


def test_a_stream_and_a_loader_cannot_be_read_by_index(data):
    class Stream(IterableDataset[int]):
        def __iter__(self):
            return iter(())

    with pytest.raises(InputError, match="cannot be read by index"):
        StepE(Stream(), epochs=2, rho_max=0.3)
    with pytest.raises(InputError, match="got a DataLoader; give its data set instead"):
        StepE(DataLoader(data), epochs=2, rho_max=0.3)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"epochs": 0}, "epochs is 0"),
        ({"warmup": EPOCHS}, "warm-up is 5 of 5"),
        ({"method": "magic"}, "unknown method 'magic'"),
        ({"labels": [0, 1]}, "there are 2 labels for 97 samples"),
        ({"view": "plain"}, "give plain_view="),
        ({"ids": ["a"]}, "there are 1 ids for 97 samples"),
        ({"class_names": ["a"]}, "there are 1 class names for 3 classes"),
        ({"groups": [1, 2]}, "groups have shape"),
        ({"method": StepEPlus(average=1.0), "rho_max": None}, "weights are averaged by stepe.fit alone"),
    ],
)
def test_mistakes_are_refused_at_once(data, options, told):
    with pytest.raises(InputError) as error:
        StepE(data, **({"epochs": EPOCHS, "rho_max": 0.3} | options))
    assert told in str(error.value)


def test_losses_that_are_all_nan_say_so(data, model):
    with torch.no_grad():
        model[0].weight.fill_(float("nan"))
    cleaner = StepE(data, epochs=2, rho_max=0.3, warmup=0)
    with pytest.raises(RunError, match="every loss is NaN or infinite before epoch 0; lower the learning rate"):
        next(iter(cleaner.epochs(model)))
