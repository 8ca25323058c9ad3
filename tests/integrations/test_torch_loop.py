"""All that a hand-written loop may ask of ``StepE`` while its kept set shrinks to 40%."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from shrinking import BATCH, EPOCHS, KEPT, SHRINKS, N, Recorded, assert_trained, clouds, network, probed_apart, sources
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, WeightedRandomSampler

from stepe import InputError, RunError, StepE


def step(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


# ---------------------------------------------------------------------------------------------------------------
# What trains, and how often


@pytest.mark.parametrize("length", ["kept", "full"])
@pytest.mark.parametrize("workers", [0, 2])
def test_kept_samples_train_as_often_as_they_should_and_dropped_ones_never(length, workers):
    training, probed = sources()
    model = network()
    cleaner = StepE(training, length=length, **probed_apart(training, probed))
    loader = cleaner.loader(BATCH, num_workers=workers, pin_memory=workers > 0)
    optimizer = sgd(model)
    training.take()
    for _ in cleaner.epochs(model):
        batches = 0
        for x, y in loader:
            step(model, optimizer, F.cross_entropy(model(x), y))
            batches += 1
        assert batches == len(loader)
        assert_trained(training.take(), cleaner.plan.kept, length)
    assert [row["kept"] for row in cleaner.history][::5] == [N, KEPT]
    assert int(probed.fetched.sum()) == EPOCHS * N  # five probes and the last word


def test_one_cycle_ends_where_it_should_at_full_length():
    model = network()
    cleaner = StepE(Recorded(*clouds()), length="full", **SHRINKS)
    loader = cleaner.loader(BATCH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = OneCycleLR(optimizer, max_lr=0.1, total_steps=EPOCHS * len(loader), cycle_momentum=False)
    rates = []
    for _ in cleaner.epochs(model):
        for x, y in loader:
            step(model, optimizer, F.cross_entropy(model(x), y))
            rates.append(optimizer.param_groups[0]["lr"])
            if len(rates) < scheduler.total_steps:
                scheduler.step()
    assert len(rates) == scheduler.total_steps
    assert max(rates) == pytest.approx(0.1, rel=0.01)
    assert rates[-1] == pytest.approx(0.1 / 25 / 1e4)


def test_progress_drives_rates_at_any_length():
    cleaner = StepE(Recorded(*clouds()), **SHRINKS)
    loader = cleaner.loader(BATCH)
    progress = []
    for epoch in cleaner.epochs(network()):
        for position, _ in enumerate(loader):
            progress.append(cleaner.progress)
            assert cleaner.progress == pytest.approx((epoch + position / len(loader)) / EPOCHS)
    assert progress[0] == 0
    assert 0.9 < progress[-1] < 1


def test_repeated_samples_draw_anew():
    class Noisy(Recorded):
        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            x, y = super().__getitem__(index)
            return torch.cat([torch.rand(5), x[:1] * 0 + index]), y

    cleaner = StepE(Noisy(*clouds()), length="full", **SHRINKS)
    loader = cleaner.loader(BATCH)
    for _ in cleaner.epochs(network()):
        x = torch.cat([x for x, _ in loader])
        assert len(x[:, 0].unique()) == len(x) == N
    assert len(x[:, 5].unique()) == KEPT


@pytest.mark.parametrize("as_sampler", [True, False], ids=["an existing sampler", "weights"])
@pytest.mark.parametrize("length", ["kept", "full"])
def test_a_weighted_sampler_is_restricted_to_what_is_kept(as_sampler, length):
    training, probed = sources()
    weights = torch.where(training.y == 0, 8.0, 1.0)
    cleaner = StepE(training, length=length, **probed_apart(training, probed))
    options = {"sampler": WeightedRandomSampler(weights, N)} if as_sampler else {"weights": weights}
    loader = cleaner.loader(BATCH, **options)
    training.take()
    for _ in cleaner.epochs(network()):
        labels = torch.cat([y for _, y in loader])
        counts, kept = training.take(), cleaner.plan.kept
        assert bool((counts[~kept] == 0).all())
        assert len(labels) == (N if length == "full" else int(kept.sum()))
        expected = float(weights[kept & (training.y == 0)].sum() / weights[kept].sum())
        assert float((labels == 0).double().mean()) == pytest.approx(expected, abs=0.2)


def test_a_batch_sampler_serves_a_loader_of_ones_own():
    training, probed = sources()
    cleaner = StepE(training, **probed_apart(training, probed))
    loader = DataLoader(training, batch_sampler=cleaner.batch_sampler(BATCH), num_workers=2, persistent_workers=True)
    training.take()
    for _ in cleaner.epochs(network()):
        assert len(list(loader)) == len(loader)
        assert_trained(training.take(), cleaner.plan.kept, "kept")
    assert int(cleaner.ledger["dropped"].sum()) == N - KEPT


def test_fewer_probes_are_enough_if_asked_for():
    cleaner = StepE(Recorded(*clouds()), probe_every=3, **SHRINKS)
    loader = cleaner.loader(BATCH)
    for _ in cleaner.epochs(network()):
        list(loader)
    assert [row["probed"] for row in cleaner.history] == [False, True, False, False, True, False]
    assert cleaner.history[-1]["kept"] == KEPT


# ---------------------------------------------------------------------------------------------------------------
# Batches of all kinds


class Described(Dataset[dict[str, Any]]):
    """Dicts, as text models like them."""

    def __init__(self) -> None:
        self.x, self.y = clouds()

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"features": self.x[index], "label": int(self.y[index]), "name": f"sample {index}"}


def collate(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"x": torch.stack([item["features"] for item in items]), "y": torch.tensor([i["label"] for i in items])}


@pytest.mark.parametrize("collated", [True, False], ids=["custom collate", "dicts"])
def test_dict_batches_need_a_forward(collated):
    data, model = Described(), network()
    cleaner = StepE(data, labels=data.y, **SHRINKS)
    loader = cleaner.loader(BATCH, **({"collate_fn": collate} if collated else {}))
    x, y = ("x", "y") if collated else ("features", "label")

    def forward(model: nn.Module, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        logits = model(batch[x])
        return F.cross_entropy(logits, batch[y], reduction="none"), logits

    optimizer = sgd(model)
    for _ in cleaner.epochs(model, forward=forward):
        for batch in loader:
            step(model, optimizer, forward(model, batch)[0].mean())
    assert cleaner.history[-1]["kept"] == KEPT
    assert len(cleaner.issues)
    with pytest.raises(InputError, match=r"a batch is a dict, not \(inputs, labels\); say how .* forward="):
        list(StepE(data, labels=data.y, **SHRINKS).epochs(model))


# ---------------------------------------------------------------------------------------------------------------
# Losses


@pytest.mark.parametrize(
    "method",
    [
        {"method": "truncation", "rho_max": 0.4},
        {"softness": 0.5, "rho_max": 0.4},
        {"rho_max": 0.4},
        *({"method": method} for method in ("gce", "mixup", "elr", "margins")),
    ],
    ids=["truncation", "weights", "step-e", "gce", "mixup", "elr", "margins"],
)
def test_the_methods_own_loss_trains_as_fit_does(method):
    import stepe

    x, y = clouds()
    options = {"epochs": 4, "seed": 3} | method
    reference, mine = network(), network()
    stepe.fit(
        reference, x, y, batch_size=BATCH, device="cpu", rate_shape=lambda progress: 1.0, probe_batch_size=64, **options
    )
    cleaner = StepE(Recorded(x, y), **options)
    loader = cleaner.loader(BATCH)
    optimizer = torch.optim.SGD(mine.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    for _ in cleaner.epochs(mine, probe_batch_size=64):
        for inputs, _ in loader:
            step(mine, optimizer, cleaner.loss(mine, inputs))
    for here, there in zip(mine.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(here, there)


@pytest.mark.parametrize("method", [{"method": "truncation"}, {"softness": 0.5}])
@pytest.mark.parametrize("batch_size", [BATCH, N])
def test_a_loss_of_ones_own_where_the_method_has_one_is_an_error(method, batch_size):
    model = network()
    cleaner = StepE(Recorded(*clouds()), epochs=4, rho_max=0.4, **method)
    loader = cleaner.loader(batch_size)
    with pytest.raises(InputError, match=r"does more than choose samples: train on cleaner.loss\(model, x\)"):
        [F.cross_entropy(model(x), y) for _ in cleaner.epochs(model) for x, y in loader]
    with pytest.raises(InputError, match=r"take the batches from cleaner.loader\(\)"):
        cleaner.batch_sampler(BATCH)


def test_the_loss_needs_a_batch():
    cleaner = StepE(Recorded(*clouds()), **SHRINKS)
    with pytest.raises(RunError, match="there is no batch to take the loss of"):
        cleaner.loss(network(), torch.zeros(2, 6))


# ---------------------------------------------------------------------------------------------------------------
# Streams


class Stream(IterableDataset[tuple[int, Tensor, int]]):
    def __init__(self) -> None:
        self.x, self.y = clouds()

    def __iter__(self):
        return ((i, self.x[i], int(self.y[i])) for i in range(N))


def stream_loop(cleaner: StepE, model: nn.Module, *, logits: bool = True) -> list[Tensor]:
    """Returns, for each epoch, which samples moved the weights."""
    optimizer, trained = sgd(model), []
    for _ in cleaner.epochs():
        trained.append(torch.zeros(N, dtype=torch.bool))
        for index, x, y in DataLoader(Stream(), batch_size=BATCH):
            outputs = model(x)
            outputs.retain_grad()
            losses = F.cross_entropy(outputs, y, reduction="none")
            step(model, optimizer, cleaner.reduce(losses, index, logits=outputs if logits else None))
            trained[-1][index] = outputs.grad.abs().sum(1) > 0
    return trained


def test_a_stream_learns_from_its_training_losses():
    _, y = clouds()
    cleaner = StepE(N, labels=y, class_names=["ant", "bee", "cat"], **SHRINKS)
    trained = stream_loop(cleaner, network())
    assert [int(mask.sum()) for mask in trained] == [row["kept"] for row in cleaner.history]
    assert cleaner.history[-1]["kept"] == KEPT
    assert torch.equal(trained[-1], ~cleaner.ledger["dropped"])
    issues = cleaner.issues
    assert set(issues["suggested_label"]) <= {"ant", "bee", "cat"}
    wrong = (y != torch.arange(N) % 3)[issues["row"].tolist()]
    assert float(wrong.double().mean()) > 0.6


def test_a_stream_without_labels_or_logits_still_drops():
    cleaner = StepE(N, **SHRINKS)
    stream_loop(cleaner, network(), logits=False)
    assert cleaner.history[-1]["kept"] == KEPT
    assert set(cleaner.issues["given_label"]) == {""}


def test_a_stream_can_find_its_rate_out():
    _, y = clouds()
    cleaner = StepE(N, labels=y, epochs=8, warmup=3)
    stream_loop(cleaner, network())
    assert cleaner.method.make_belief(cleaner.ledger).found_rate is not None


def test_a_sample_that_did_not_come_is_as_it_was():
    cleaner = StepE(4, epochs=3, rho_max=0.5, warmup=1)
    epochs = cleaner.epochs()
    next(epochs)
    cleaner.reduce(torch.tensor([1.0, 2.0, 3.0]), [0, 1, 2])
    cleaner.reduce(torch.tensor([0.5]), [1])  # again: the later time counts
    next(epochs)
    assert cleaner.ledger["loss"].nan_to_num(-1).tolist() == [1.0, 0.5, 3.0, -1.0]
    cleaner.reduce(torch.tensor([9.0]), [0])
    next(epochs)
    assert cleaner.ledger["loss"].nan_to_num(-1).tolist() == [9.0, 0.5, 3.0, -1.0]


def test_dropped_samples_weigh_nothing_whatever_their_loss():
    cleaner = StepE(4, epochs=2, rho_max=0.5, warmup=1)
    epochs = cleaner.epochs()
    next(epochs)
    cleaner.reduce(torch.tensor([1.0, 5.0, 2.0, 5.0]), [0, 1, 2, 3])
    next(epochs)
    losses = torch.tensor([1.0, torch.inf, 3.0, torch.nan], requires_grad=True)
    loss = cleaner.reduce(losses, torch.arange(4))
    loss.backward()
    assert loss.item() == 2.0
    assert losses.grad.tolist() == [0.5, 0.0, 0.5, 0.0]
    nothing = cleaner.reduce(losses[[1, 3]], [1, 3])
    assert nothing.item() == 0


def test_a_stream_goes_on_where_it_was_saved():
    _, y = clouds()
    reference, through = StepE(N, labels=y, **SHRINKS), network()
    stream_loop(reference, through)

    first, model = StepE(N, labels=y, **SHRINKS), network()
    optimizer, state = sgd(model), None
    for epoch in first.epochs():
        for index, x, labels in DataLoader(Stream(), batch_size=BATCH):
            outputs = model(x)
            losses = F.cross_entropy(outputs, labels, reduction="none")
            step(model, optimizer, first.reduce(losses, index, logits=outputs))
        if epoch == 2:
            state = first.state_dict()
        if epoch == 3:
            kept = first.plan.kept
            break
    second = StepE(N, labels=y, **SHRINKS)
    second.load_state_dict(state)
    assert next(second.epochs()) == 3
    assert torch.equal(second.plan.kept, kept)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda cleaner: cleaner.reduce(torch.tensor(1.0), [0, 1]), "gave losses of shape"),
        (lambda cleaner: cleaner.reduce(torch.ones(1), [N]), f"sample {N} is not one of 0..{N - 1}"),
        (lambda cleaner: cleaner.loader(BATCH), "a stream has no batches of ours"),
        (lambda cleaner: cleaner.batch_sampler(BATCH), "a stream has no batches of ours"),
        (lambda cleaner: list(cleaner.epochs(network())), "a stream cannot be probed"),
        (lambda cleaner: list(StepE(N, **SHRINKS).epochs()), "no losses came in"),
        (lambda cleaner: StepE(0, **SHRINKS), "the stream has 0 samples"),
        (lambda cleaner: StepE(Stream(), **SHRINKS), "cannot be read by index"),
    ],
)
def test_mistakes_with_streams_name_the_fix(call, told):
    cleaner = StepE(N, **SHRINKS)
    epochs = cleaner.epochs()
    next(epochs)
    with pytest.raises((InputError, RunError)) as error:
        call(cleaner)
    assert told in str(error.value)


def test_reducing_outside_of_an_epoch_is_an_error():
    with pytest.raises(RunError, match="no epoch is on"):
        StepE(N, **SHRINKS).reduce(torch.ones(2), [0, 1])


# ---------------------------------------------------------------------------------------------------------------
# Saving and going on


def loop(
    cleaner: StepE, model: nn.Module, optimizer: Any, stop: tuple[int, int] | None, workers: int
) -> tuple[list[list[int]], dict[str, Any] | None]:
    """The samples of each epoch as (position), and a saved state if it stopped after a batch of an epoch."""
    loader = cleaner.loader(BATCH, num_workers=workers)
    seen: list[list[int]] = []
    for epoch in cleaner.epochs(model):
        seen.append([])
        for batch, (x, y) in enumerate(loader, 1):
            step(model, optimizer, F.cross_entropy(model(x), y))
            seen[-1] += cleaner.share.index.tolist()
            if stop == (epoch, batch):
                state = {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "cleaner": cleaner.state_dict(),
                }
                return seen, state
    return seen, None


@pytest.mark.parametrize("length", ["kept", "full"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("after", [(0, 3), (3, 1), (3, 2)])
def test_a_loop_goes_on_in_the_middle_of_an_epoch(tmp_path, length, workers, after):
    training, probed = sources()
    reference = network()
    through, _ = loop(
        StepE(training, length=length, **probed_apart(training, probed)), reference, sgd(reference), None, 0
    )

    training, probed = sources()
    model = network()
    first = StepE(training, length=length, **probed_apart(training, probed))
    before, state = loop(first, model, sgd(model), after, workers)
    torch.save(state, tmp_path / "state.pt")

    state = torch.load(tmp_path / "state.pt", weights_only=True)
    model = network()
    model.load_state_dict(state["model"])
    optimizer = sgd(model)
    optimizer.load_state_dict(state["optimizer"])
    second = StepE(training, length=length, **probed_apart(training, probed))
    second.load_state_dict(state["cleaner"])
    rest, _ = loop(second, model, optimizer, None, workers)

    seen = [*before[:-1], before[-1] + rest[0], *rest[1:]]
    assert seen == through
    assert int(probed.fetched.sum()) == EPOCHS * N  # before and after the break: no probe twice
    assert [row["epoch"] for row in second.history] == list(range(EPOCHS))
    for here, there in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.equal(here, there)


def test_after_its_last_batch_an_epoch_is_over():
    cleaner, model = StepE(Recorded(*clouds()), **SHRINKS), network()
    loader = cleaner.loader(BATCH)
    for epoch in cleaner.epochs(model):
        for _ in loader:
            pass
        if epoch == 2:
            state = cleaner.state_dict()
            break
    again = StepE(Recorded(*clouds()), **SHRINKS)
    again.load_state_dict(state)
    assert list(again.epochs(model)) == [3, 4, 5]
    assert [row["epoch"] for row in again.history] == list(range(EPOCHS))


def test_with_a_loader_of_ones_own_one_says_how_far_it_came():
    model = network()
    cleaner = StepE(Recorded(*clouds()), **SHRINKS)
    sampler = cleaner.batch_sampler(BATCH)
    for _ in cleaner.epochs(model):
        whole = list(sampler)
        state = cleaner.state_dict(batches=2)
        break
    again = StepE(Recorded(*clouds()), **SHRINKS)
    again.load_state_dict(state)
    sampler = again.batch_sampler(BATCH)
    for epoch in again.epochs(model):
        assert list(sampler) == (whole[2:] if epoch == 0 else list(sampler))


def test_a_state_of_another_run_is_refused():
    state = StepE(Recorded(*clouds()), **SHRINKS).state_dict()
    with pytest.raises(RunError, match="another run: epochs was 6 and is 7"):
        StepE(Recorded(*clouds()), **SHRINKS | {"epochs": 7}).load_state_dict(state)


def test_another_batch_size_inside_of_an_epoch_is_refused():
    cleaner = StepE(Recorded(*clouds()), **SHRINKS)
    loader = cleaner.loader(BATCH)
    for _ in cleaner.epochs(network()):
        next(iter(loader))
        break
    again = StepE(Recorded(*clouds()), **SHRINKS)
    again.load_state_dict(cleaner.state_dict())
    loader = again.loader(8)
    with pytest.raises(RunError, match=r"after 1 batches of 16 samples.*keep that batch size"):
        [list(loader) for _ in again.epochs(network())]


# ---------------------------------------------------------------------------------------------------------------
# A probe loader of one's own


def test_a_sequential_probe_loader_is_taken():
    data, model = Recorded(*clouds()), network()
    ours, yours = StepE(data, **SHRINKS), StepE(data, **SHRINKS)
    list(ours.epochs(model))
    list(yours.epochs(model, probe_loader=DataLoader(Recorded(*clouds()), batch_size=10, num_workers=1)))
    torch.testing.assert_close(yours.ledger["loss"], ours.ledger["loss"])
    assert torch.equal(yours.ledger["dropped"], ours.ledger["dropped"])


class Shifted(Recorded):
    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return super().__getitem__((index + 1) % N)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda data, cleaner: DataLoader(data, batch_size=10, shuffle=True), "shuffles, or has a sampler of its own"),
        (lambda data, cleaner: cleaner.loader(BATCH), "has a batch sampler of its own (PlanSampler)"),
        (lambda data, cleaner: DataLoader(data, batch_size=10, drop_last=True), "drop_last=True and so leaves samples"),
        (lambda data, cleaner: DataLoader(data, batch_size=None), "makes no batches (batch_size=None)"),
        (lambda data, cleaner: DataLoader(Subset(data, range(50))), "reads 50 samples of a Subset, the run has 97"),
        (lambda data, cleaner: DataLoader(Subset(data, range(N)[::-1])), "reads 97 samples of a Subset"),
        (lambda data, cleaner: DataLoader(Stream()), "reads a stream"),
        (lambda data, cleaner: [1, 2], "is a list, not a DataLoader"),
        (lambda data, cleaner: DataLoader(Shifted(*clouds())), "gives other labels than the data set"),
    ],
    ids=["shuffled", "ours", "drop_last", "unbatched", "subset", "reversed", "stream", "no loader", "shifted"],
)
def test_a_misaligned_probe_loader_is_refused(make, told):
    data = Recorded(*clouds())
    cleaner = StepE(data, **SHRINKS)
    with pytest.raises(InputError) as error:
        list(cleaner.epochs(network(), probe_loader=make(data, cleaner)))
    assert told in str(error.value)
    assert "same samples" in str(error.value) or "shuffle=False" in str(error.value)


# ---------------------------------------------------------------------------------------------------------------
# What is refused


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.inner(x)}


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda c: list(c.epochs(Named())), "the model returned a dict, not a tensor of logits; say how a batch"),
        (lambda c: list(c.epochs(nn.Linear(6, 2))), "one logit per class"),
        (lambda c: list(c.epochs(network(), forward=lambda m, b: F.cross_entropy(m(b[0]), b[1]))), 'reduction="none"'),
        (lambda c: c.loader(BATCH, sampler=torch.utils.data.SequentialSampler(range(N))), "sampler=SequentialSampler"),
        (lambda c: c.loader(BATCH, sampler=WeightedRandomSampler([1.0] * N, 5, replacement=False)), "with replacement"),
        (lambda c: c.loader(BATCH, weights=[1.0, 2.0]), "weights have shape (2,)"),
        (lambda c: c.loader(BATCH, weights=[-1.0] * N), "none negative"),
        (lambda c: c.loader(BATCH, shuffle=True), "leave the loader options shuffle out"),
        (lambda c: StepE(Recorded(*clouds()), length="half", **SHRINKS), "length is 'half'"),
        (lambda c: StepE(Recorded(*clouds()), probe_every=0, **SHRINKS), "probe_every is 0"),
        (lambda c: StepE(Recorded(*clouds()), trusted=[True], **SHRINKS), "give one bool a sample"),
    ],
)
def test_mistakes_name_the_fix(call, told):
    with pytest.raises(InputError) as error:
        call(StepE(Recorded(*clouds()), **SHRINKS))
    assert told in str(error.value)


def test_trusted_samples_always_train():
    trusted = torch.arange(N) < 20
    cleaner = StepE(Recorded(*clouds()), trusted=trusted, **SHRINKS)
    loader = cleaner.loader(BATCH)
    for _ in cleaner.epochs(network()):
        list(loader)
        assert bool(cleaner.plan.kept[trusted].all())
    assert cleaner.history[-1]["kept"] == KEPT


@pytest.mark.parametrize("method", ["step-e-plus", "co-teaching", "gce"])
def test_losses_of_given_labels_are_refused_by_methods_that_train_on_others(method):
    cleaner = StepE(4, labels=[0, 1, 0, 1], epochs=2, method=method, noise_rate=0.25)
    epochs = cleaner.epochs()
    next(epochs)
    with pytest.raises(InputError, match=f"'{method}' trains on other losses .* step-e"):
        cleaner.reduce(torch.ones(4), [0, 1, 2, 3])
