"""What every adapter shares: the method, ledger and plan of a run whose training loop belongs to somebody else.

An adapter calls :meth:`Cleaner.begin_epoch` before an epoch, trains on :meth:`Cleaner.shares`, says how far it got in
:attr:`Cleaner.done`, and calls :meth:`Cleaner.end_epoch`. What is saved in the middle of an epoch goes on there.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, Subset

from stepe.engine.eager import to_device
from stepe.errors import InputError, RunError
from stepe.evidence.believe import training_table
from stepe.loop.labels import with_residuals
from stepe.loop.ledger import Ledger, Observation
from stepe.loop.plan import Plan, Share, batch_sizes
from stepe.loop.probe import probe
from stepe.loop.randomness import Stream
from stepe.loop.ranks import Ranks, unwrapped
from stepe.loop.schedule import check_epochs
from stepe.methods import Criterion, Method, Task, make_method
from stepe.methods.doors import DEFAULT_METHOD, tell_method
from stepe.samples.given_labels import check_labels, check_returned, label_tensor, read_labels
from stepe.samples.samples import DatasetSamples, check_view
from stepe.training.building import (
    Row,
    check_batch_size,
    check_class_names,
    check_groups,
    check_ids,
    check_trusted,
    count_classes,
    cross_entropy,
)

if TYPE_CHECKING:
    import pandas as pd

BatchForward = Callable[[nn.Module, Any], "Tensor | tuple[Tensor, Tensor]"]
"""(model, batch) -> one loss per sample, or (losses, logits)"""


@dataclass(frozen=True)
class Probing:
    """How to look at all samples."""

    forward: BatchForward | None = None
    batch_size: int = 512
    loader: DataLoader[Any] | None = None
    """the user's own, in the order of the samples"""


class Cleaner:
    """Chooses, before every epoch, which samples somebody's loop trains on.

    It takes the data set and owns the probe, because a probe that is not aligned with the data set by index would
    drop the wrong samples without a sign of it.

    Args:
        data: a map-style data set returning ``(x, y)``, or of a stream the number of its samples.
        epochs: how many epochs will be trained.
        method: ``step-e``, or another method; its options follow by keyword. ``step-e-plus`` goes without averaged
            weights here, unless you average them yourself and have that model probed.
        rho_max: largest share ever dropped; ``noise_rate``, a known share of wrong labels, may stand in for it.
        labels: one integer per sample, or, with a ``criterion`` or ``forward`` of your own, one number or one row of 0
            and 1; by default the data set's ``targets`` or ``labels``, or what it returns.
        groups: one integer per sample for ``min_keep``; by default the class.
        trusted: one bool per sample: labels that were checked; these samples are never dropped.
        class_names: for the issues; by default the numbers.
        ids: what to call the samples in the issues; by default their positions.
        plain_view: the same samples without augmentation, for ``view="plain"``.
        criterion: (outputs, targets) -> one loss per sample; by default cross-entropy.
        length: ``kept``: an epoch has each kept sample once, and so gets shorter. ``full``: kept samples are repeated
            until it is as long as the data set, for schedulers and frameworks that count steps once, at the start.
    """

    def __init__(
        self,
        data: Any,
        *,
        epochs: int,
        method: str | Method = DEFAULT_METHOD["StepE"],
        noise_rate: float | None = None,
        labels: Any = None,
        groups: Any = None,
        trusted: Any = None,
        class_names: list[str] | None = None,
        ids: list[str] | None = None,
        plain_view: Any = None,
        criterion: Criterion | None = None,
        length: Literal["kept", "full"] = "kept",
        seed: int = 0,
        **method_options: Any,
    ):
        if length not in ("kept", "full"):
            raise InputError(f"length is {length!r}; choose 'kept', or 'full' to repeat kept samples up to all")
        check_epochs(epochs, warmup=0)
        self.length, self._has_criterion = length, criterion is not None
        self.samples = None if isinstance(data, int) else DatasetSamples(data, plain_view)
        given = _stream_labels(data, labels) if isinstance(data, int) else _labels(data, labels)
        n, classes = len(given), count_classes(given)
        self.task = Task(
            labels=given,
            classes=classes,
            epochs=epochs,
            seed=seed,
            criterion=criterion or cross_entropy(classes),
            noise_rate=noise_rate,
            groups=None if groups is None else check_groups(groups, n),
            trusted=None if trusted is None else check_trusted(trusted, n),
        )
        self.method = make_method(method, **method_options)
        self.ledger = Ledger(n)
        self.method.start(self.task, self.ledger)
        if self.method.averaging and getattr(self.method, "average", None):
            raise InputError(
                "weights are averaged by stepe.fit alone; in a loop of your own leave average out, and give the probe "
                "an average that you keep: cleaner.epochs(averaged), of torch.optim.swa_utils.AveragedModel for example"
            )
        if self.method.written() and Ranks.current().world > 1:
            raise InputError(
                f"method {self.method.name!r} remembers samples in training steps, and loops of one's own do not "
                "exchange that between processes: use stepe.fit, or one process"
            )
        if self.samples is not None:
            check_view(self.samples, self.method.view)
        tell_method("StepE", self.method)
        self.history: list[Row] = []
        self.plan: Plan | None = None
        """what the current epoch trains on; ``None`` before the first and after the last"""
        self.done = 0
        """batches of the current epoch that were handed out"""
        self.skip = 0
        """batches of the epoch that were trained before it was taken up, and do not come again"""
        self._row: Row = {}
        self._batch_size: int | None = None
        self._unnamed = class_names is None and labels is None and self.samples is None
        self._class_names, self._names = check_class_names(class_names, classes), check_ids(ids, n)

    @property
    def has_own_loss(self) -> bool:
        """Whether training takes more than choosing samples: another loss, weights or targets."""
        planned = self.plan is not None and (self.plan.weight is not None or self.plan.target is not None)
        return planned or self.method.has_own_loss or bool(getattr(self.method, "softness", 0))

    # -- An epoch -----------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch that is on, or comes next."""
        return len(self.history)

    def begin_epoch(self, observe: Callable[[int], None]) -> None:
        """Select what to train on; ``observe(epoch)`` is called first if the method asks for a probe.

        An epoch that was taken up in its middle is left as it is.
        """
        if self.plan is not None:
            return
        probed = self.method.wants_probe(self.epoch)
        if probed:
            observe(self.epoch)
        plan = self.method.plan(self.epoch, self.ledger)
        if not bool((plan.kept if plan.trains is None else plan.trains).any()):
            raise RunError(f"epoch {self.epoch} would train on nothing; lower rho_max (it dropped everything)")
        self.method.prepare(self.epoch)
        turnover = self.ledger.record_selection(plan.kept)
        kept = int(plan.kept.sum())
        self._row = {
            "epoch": self.epoch,
            "probed": probed,
            "drop_fraction": plan.drop_fraction,
            "kept": kept,
            "dropped": self.task.n - kept,
            **asdict(turnover),
        }
        self.plan = replace(plan, length=self.task.n) if self.length == "full" else plan
        self.done = 0

    def end_epoch(self) -> None:
        """Write the epoch into the history."""
        self.history.append(self._row)
        self.plan, self.done, self.skip = None, 0, 0

    def shares(self, batch_size: int, plan: Plan | None = None) -> list[Share]:
        """This rank's share of every batch of the epoch."""
        ranks = Ranks.current()
        if batch_size < ranks.world:
            raise InputError(
                f"a batch has {batch_size} samples for {ranks.world} processes; batch_size counts those of all "
                "processes together: give each at least one"
            )
        if self.done and self._batch_size not in (None, batch_size):
            raise RunError(
                f"the state was saved after {self.done} batches of {self._batch_size} samples; to go on inside of the "
                f"epoch, keep that batch size (it is {batch_size} now)"
            )
        self._batch_size = batch_size
        plan = plan or self.plan
        assert plan is not None
        return plan.batches(batch_size, rank=ranks.rank, world=ranks.world)

    # -- The probe ----------------------------------------------------------------------------------------------

    def probe(self, model: nn.Module, epoch: int, how: Probing) -> None:
        """Judge every sample with the model as it is; under torchrun, each process a part of them."""
        model = unwrapped(model)
        Ranks.current().broadcast(model.buffers())  # as the next forward pass of a DDP model would do
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        stream = Stream.named(self.task.seed, "probe", epoch)
        seen = self._look(model, device, stream, how)
        if not bool(torch.isfinite(seen.loss).any()):
            raise RunError(f"every loss is NaN or infinite before epoch {epoch}; lower the learning rate")
        self.method.observe(epoch, seen, self.ledger)

    def _look(self, model: nn.Module, device: torch.device, stream: Stream, how: Probing) -> Observation:
        n = self.task.n
        positions = torch.split(torch.arange(n), check_batch_size(how.batch_size, n))
        # A loader of the user's own is read whole by every process: it is not ours to cut.
        ranks = Ranks() if how.loader is not None else Ranks.current()
        parts = ranks.deal(positions)

        def batches() -> Iterator[tuple[Tensor, Any]]:
            done = 0
            for part, batch in self._batches(parts, stream, how.loader):
                place, labels = torch.arange(done, done + len(part)), self.task.labels[part]
                yield place, (to_device(batch, device), labels.to(device))
                done += len(part)

        seen = probe(
            model,
            batches(),
            sum(map(len, parts)),
            lambda pair: self._judge(model, how.forward, *pair),
            stream=stream,
            device=device,
            probabilities=self.method.needs_probabilities,
            read=self.task.read,
        )
        return with_residuals(ranks.assemble(seen, positions), self.task.labels)

    def _batches(
        self, parts: list[Tensor], stream: Stream, loader: DataLoader[Any] | None
    ) -> Iterator[tuple[Tensor, Any]]:
        if loader is None:
            assert self.samples is not None
            yield from zip(parts, self.samples.fetch_batches(parts, stream, self.method.view), strict=True)
            return
        check_sequential(loader, self.task.n, None if self.samples is None else self.samples.dataset)
        done = 0
        for batch in loader:
            part = torch.arange(done, min(done + (loader.batch_size or 1), self.task.n))
            done += len(part)
            _check_aligned(batch, self.task.labels[part])
            yield part, batch

    def _judge(
        self, model: nn.Module, forward: BatchForward | None, batch: Any, labels: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        how = "say how a batch becomes one loss per sample: forward=lambda model, batch: ..."
        if forward is not None:
            seen = forward(model, batch)
            return (*seen, labels) if isinstance(seen, tuple) else (seen, None, None)
        if not isinstance(batch, list | tuple):
            raise InputError(f"a batch is a {type(batch).__name__}, not (inputs, labels); {how}")
        if self.task.kind != "classes" and not self._has_criterion:
            raise InputError(f"labels are {self.task.kind}, not classes; give criterion=, or {how}")
        logits = model(batch[0])
        if not isinstance(logits, Tensor):
            raise InputError(f"the model returned a {type(logits).__name__}, not a tensor of logits; {how}")
        return self.task.criterion(logits, labels), logits if self.task.can_read(logits) else None, labels

    # -- What was found -----------------------------------------------------------------------------------------

    @property
    def issues(self) -> "pd.DataFrame":
        """The samples that look wrong, most suspicious first."""
        import pandas as pd

        if not int(self.ledger["times_probed"].max()):
            raise RunError("nothing has been probed yet; run your loop over cleaner.epochs(model) first")
        belief, warmup = self.method.believes(self.ledger), self.method.warmup_epochs
        table = pd.DataFrame(training_table(belief, self.ledger, self.task, warmup, self._class_names, self._names))
        if self._unnamed:  # nobody said what the labels of the stream are
            table["given_label"] = ""
        return table[table["flagged"]].sort_values("rank").reset_index(drop=True)

    # -- Saving and going on ------------------------------------------------------------------------------------

    def state_dict(self, *, batches: int | None = None, over: bool | None = None) -> dict[str, Any]:
        """Everything needed to go on after ``batches`` of the epoch, :attr:`done` unless given.

        After the last of them, the epoch counts as ``over`` unless its owner knows better.
        """
        done = 0 if self.plan is None else self.done if batches is None else batches
        history, plan, row = self.history, self.plan, self._row
        if plan is not None and (self._is_over(done) if over is None else over):
            history, plan, row, done = [*history, row], None, {}, 0
        return {
            "run": self._identity(),
            "history": [dict(entry) for entry in history],
            "row": dict(row),
            "done": done,
            "batch_size": self._batch_size,
            "plan": None if plan is None else {f.name: _copy(getattr(plan, f.name)) for f in fields(plan)},
            "ledger": {name: column.clone() for name, column in self.ledger.state_dict().items()},
            "method": self.method.state_dict(),
        }

    def _is_over(self, done: int) -> bool:
        """Whether all of the epoch's batches are trained; a stream, which has none of ours, is saved between epochs."""
        if self.samples is None:
            return True
        assert self.plan is not None
        world = Ranks.current().world
        return self._batch_size is not None and done >= len(batch_sizes(self.plan.count, self._batch_size, world))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        if (saved := state["run"]) != (now := self._identity()):
            changed = [key for key in now if saved.get(key) != now[key]]
            different = [f"{key} was {saved.get(key)!r} and is {now[key]!r}" for key in changed]
            raise RunError(f"the state was saved by another run: {'; '.join(different)}. Go on as it was")
        self.ledger.load_state_dict(state["ledger"])
        self.method.load_state_dict(state["method"])
        self.history, self._row = [dict(entry) for entry in state["history"]], dict(state["row"])
        self.plan = None if state["plan"] is None else Plan(**state["plan"])
        self.done = self.skip = state["done"]
        self._batch_size = state["batch_size"] if self.done else None

    def _identity(self) -> Row:
        """What a run that goes on must share with the one that was saved."""
        return {
            "samples": self.task.n,
            "epochs": self.task.epochs,
            "method": self.method.name,
            "seed": self.task.seed,
            "length": self.length,
        }


def check_sequential(loader: Any, n: int, dataset: Any) -> None:
    """Refuse a probe loader whose k-th sample is not the k-th of the data set: it would drop the wrong samples."""
    fix = (
        "make it DataLoader(dataset, batch_size=..., shuffle=False), or leave it out: the data set is then read anyway"
    )
    if not isinstance(loader, DataLoader):
        raise InputError(f"the probe loader is a {type(loader).__name__}, not a DataLoader; {fix}")
    if isinstance(loader.dataset, IterableDataset):
        raise InputError(f"the probe loader reads a stream, whose order nothing vouches for; {fix}")
    # A custom batch sampler leaves loader.sampler a SequentialSampler: the batch sampler is what counts.
    cutter = loader.batch_sampler
    if type(cutter) is not BatchSampler or type(cutter.sampler) is not SequentialSampler:
        raise InputError(
            "the probe loader shuffles, or has a sampler of its own, so that its losses would be taken for those of "
            f"other samples; {fix}"
        )
    if cutter.drop_last:
        raise InputError(f"the probe loader has drop_last=True and so leaves samples out; {fix}")
    length = len(loader.dataset)  # type: ignore[arg-type]
    if length != n or (isinstance(loader.dataset, Subset) and loader.dataset is not dataset):
        raise InputError(
            f"the probe loader reads {length} samples of a {type(loader.dataset).__name__}, the run has {n}; it must "
            f"hold the same samples in the same order; {fix}"
        )


def _check_aligned(batch: Any, labels: Tensor) -> None:
    """Compare labels, where the batch brings some."""
    found = batch[1] if isinstance(batch, list | tuple) and len(batch) > 1 else None
    if isinstance(found, Tensor) and found.shape == labels.shape and not torch.equal(found.cpu().to(labels), labels):
        raise InputError(
            "the probe loader gives other labels than the data set at the same positions; it must hold the same "
            "samples in the same order"
        )


def _labels(dataset: Any, labels: Any) -> Tensor:
    given = check_labels(read_labels(dataset) if labels is None else labels, len(dataset), any_kind=True)
    if labels is not None:
        check_returned(dataset, given, "the labels you gave")
    return given


def _stream_labels(n: int, labels: Any) -> Tensor:
    if n < 1:
        raise InputError(f"the stream has {n} samples; say how many there are, so that each has a place by its index")
    return torch.zeros(n, dtype=torch.int64) if labels is None else label_tensor(labels, n, any_kind=True)


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value
