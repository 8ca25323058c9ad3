"""Step-E inside a training loop of your own.

.. code-block:: python

    cleaner = stepe.StepE(train, epochs=60, rho_max=0.45)
    loader = cleaner.loader(batch_size=128, num_workers=4)
    for epoch in cleaner.epochs(model):       # probes and selects
        for x, y in loader:                   # your loop, untouched
            ...
    cleaner.issues.to_csv("issues.csv")
"""

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from stepe.errors import InputError, RunError
from stepe.integrations.loader import PlannedLoader, PlanSampler, check_chance, take_weights
from stepe.integrations.probing import AskedJudge, BatchForward, Probing, ask
from stepe.integrations.training_losses import TrainingLosses
from stepe.loop.ledger import Ledger
from stepe.loop.plan import Plan, Share, batch_sizes
from stepe.loop.probe import check_losses
from stepe.loop.processes import Ranks
from stepe.loop.schedule import check_epochs
from stepe.methods import OPTIONS_OF_OTHERS, Batch, Criterion, Forward, Method, StepwiseElimination, Task, method_with
from stepe.methods.doors import DEFAULT_METHOD, announce_method
from stepe.options.check import checked_beside
from stepe.options.method import (
    GuessMemory,
    Memory,
    MinKeep,
    NoiseRate,
    ProbeEvery,
    RampEnd,
    RhoMax,
    Schedule,
    Score,
    Softness,
    Sticky,
    View,
    Warmup,
)
from stepe.options.running import Epochs, Seed
from stepe.samples.given_labels import as_tensor, check_labels, check_returned, label_tensor, read_labels
from stepe.samples.samples import DatasetSamples, check_view
from stepe.training.building import (
    check_batch_size,
    check_class_names,
    check_groups,
    check_ids,
    check_trusted,
    count_classes,
    cross_entropy,
)
from stepe.training.issues import training_table
from stepe.training.session import Row, Session

if TYPE_CHECKING:
    import pandas as pd

OLD_LOADER = (
    "the first epoch took no batch of cleaner.loader(batch_size=...), and a loader of your own trains on dropped "
    "samples too: iterate over the cleaner's inside `for epoch in cleaner.epochs(model):`"
)
ELSEWHERE = OPTIONS_OF_OTHERS | {
    "probe": "networks that judge what they do not train on (cross:K, auto) are trained by stepe.fit alone; in a loop "
    "of your own the model judges, or what you give as judge="
}
"""what to say of options that are not for loops of one's own"""


class StepE(Session):
    """Chooses, before every epoch, which samples somebody's loop trains on.

    It takes the data set and owns the probe, because a probe that is not aligned with the data set by index would
    drop the wrong samples without a sign of it.

    Args:
        data: a map-style data set returning ``(x, y)``, or of a stream the number of its samples.
        epochs: how many epochs will be trained.
        rho_max: largest share ever dropped; ``noise_rate``, a known share of wrong labels, may stand in for it. These
            and the other options of Step-E are those of :func:`stepe.fit`.
        method: another method, by name or as an instance with options of its own. ``StepEPlus`` goes without averaged
            weights here, unless you average them yourself and have that model probed.
        judge: asked at each probe in the model's place: (weights, targets) -> how likely each class is to each sample
            (n x K), by a model that did not learn from that sample, such as a classifier in folds over features that
            you have. ``weights`` (n) and ``targets`` (n x K) are what the last epoch trained on; weight 0 is dropped.
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

    is_on = False
    """whether an epoch is being trained"""
    share: Share | None = None
    """the batch that :meth:`loader` gave last"""
    awaits_loss = False
    """whether :meth:`loss` has to be called before the next batch"""
    gave_batches = False
    """whether the epoch's batches were asked for"""

    @checked_beside(ELSEWHERE)
    def __init__(
        self,
        data: Any,
        *,
        epochs: Epochs,
        rho_max: RhoMax = None,
        warmup: Warmup = None,
        noise_rate: NoiseRate | None = None,
        min_keep: MinKeep = 0.0,
        schedule: Schedule = "auto",
        ramp_end: RampEnd = None,
        score: Score = "auto",
        memory: Memory = 0.0,
        sticky: Sticky = False,
        softness: Softness = 0.0,
        probe_every: ProbeEvery = 1,
        guess_memory: GuessMemory = None,
        view: View = "augmented",
        method: str | Method = DEFAULT_METHOD["StepE"],
        judge: AskedJudge | None = None,
        labels: Any = None,
        groups: Any = None,
        trusted: Any = None,
        class_names: list[str] | None = None,
        ids: list[str] | None = None,
        plain_view: Any = None,
        criterion: Criterion | None = None,
        length: Literal["kept", "full"] = "kept",
        seed: Seed = 0,
    ):
        arguments = locals()
        made = method_with(method, {name: arguments[name] for name in StepwiseElimination.options()})
        if length not in ("kept", "full"):
            raise InputError(f"length is {length!r}; choose 'kept', or 'full' to repeat kept samples up to all")
        check_epochs(epochs, warmup=0)
        self.length, self.judge, self._has_criterion = length, judge, criterion is not None
        self.samples = None if isinstance(data, int) else DatasetSamples(data, plain_view)
        given = _stream_labels(data, labels) if isinstance(data, int) else _labels(data, labels)
        n, classes = len(given), count_classes(given)
        task = Task(
            labels=given,
            classes=classes,
            epochs=epochs,
            seed=seed,
            criterion=criterion or cross_entropy(classes),
            noise_rate=noise_rate,
            groups=None if groups is None else check_groups(groups, n),
            trusted=None if trusted is None else check_trusted(trusted, n),
            probe="in-sample" if judge is None else "judge",
        )
        super().__init__(task, made, Ledger(n))
        self._unnamed = class_names is None and labels is None and self.samples is None
        if judge is not None and (self._unnamed or task.kind != "classes"):
            kind = "unknown" if self._unnamed else task.kind
            raise InputError(f"a judge says how likely each class is, and these labels are {kind}: leave judge= out")
        self.method.start(task, self.ledger)
        if self.method.averaging and getattr(self.method, "average", None):
            raise InputError(
                "weights are averaged by stepe.fit alone; in a loop of your own leave average out, and give the probe "
                "an average that you keep: cleaner.epochs(averaged), of torch.optim.swa_utils.AveragedModel for example"
            )
        if self.method.written_columns() and Ranks.current().world > 1:
            raise InputError(
                f"method {self.method.name!r} remembers samples in training steps, and loops of one's own do not "
                "exchange that between processes: use stepe.fit, or one process"
            )
        if self.samples is not None:
            check_view(self.samples, self.method.view)
        announce_method("StepE", self.method)
        self.done = 0
        """batches of the current epoch that were handed out"""
        self.skip = 0
        """batches of the epoch that were trained before it was taken up, and do not come again"""
        self._batch_size: int | None = None
        self._training_losses = TrainingLosses()
        self._class_names, self._names = check_class_names(class_names, classes), check_ids(ids, n)

    @property
    def has_own_loss(self) -> bool:
        """Whether training takes more than choosing samples: another loss, weights or targets."""
        planned = self.plan is not None and (self.plan.weight is not None or self.plan.target is not None)
        return planned or self.method.has_own_loss or bool(getattr(self.method, "softness", 0))

    # -- Epochs -------------------------------------------------------------------------------------------------

    def epochs(
        self,
        model: nn.Module | None = None,
        *,
        forward: BatchForward | None = None,
        probe_batch_size: int = 512,
        probe_loader: DataLoader[Any] | None = None,
    ) -> Iterator[int]:
        """Yield the epochs; before each, probe the model if the method asks and select what to train on.

        Args:
            model: what is trained; without it, a judge or the losses given to :meth:`reduce` stand in for the probe.
            forward: turns (model, batch) into one loss per sample, or into (losses, logits), if the criterion of
                ``model(x)`` is not yours.
            probe_loader: your own, for the probe; it must read all samples in their order.
        """
        how = Probing(forward, probe_batch_size, probe_loader)
        if self.samples is None and model is not None and probe_loader is None and self.judge is None:
            raise InputError(
                "a stream cannot be probed: leave the model out of epochs() and train on "
                "cleaner.reduce(losses, index), which learns from the training losses"
            )

        def probe(epoch: int) -> None:
            self._listen(epoch) if model is None and self.judge is None else self.probe(model, epoch, how)

        try:
            while self.epoch < self.task.epochs:
                self.skip = self.done
                self.open_epoch(probe)
                self.is_on = True
                yield self.epoch
                if not (self.gave_batches or self.epoch or self.samples is None):
                    warnings.warn(OLD_LOADER, stacklevel=2)
                self.end_epoch()
        finally:
            self.is_on, self.share = False, None
        probe(self.task.epochs)  # the last word on every sample

    def open_epoch(self, probe: Callable[[int], None]) -> None:
        """Begin the next epoch, with ``probe(epoch)`` first if the method asks for it.

        An epoch that was taken up in its middle is left as it is.
        """
        if self.plan is not None:
            return
        if self.wants_probe():
            probe(self.epoch)
        self.begin_epoch()

    def begin_epoch(self) -> Plan:
        """Plan the epoch; its length is that of the data set if asked for."""
        plan = super().begin_epoch()
        self.plan = replace(plan, length=self.task.n) if self.length == "full" else plan
        self.done, self.gave_batches = 0, False
        return self.plan

    def end_epoch(self, **measured: Any) -> Row:
        """Write the epoch into the history."""
        self.done = self.skip = 0
        return super().end_epoch(**measured)

    def probe(self, model: nn.Module | None, epoch: int, how: Probing) -> None:
        """Have every sample judged: by the judge, where there is one, else by the model as it is."""
        if self.judge is not None:
            before = self.method.plan(epoch - 1, self.ledger) if epoch else None
            return self.observe(epoch, ask(self.judge, self.task, before))
        assert model is not None
        how = replace(how, has_criterion=self._has_criterion)
        return self.observe(epoch, how.look(model, self.task, self.method, self.samples, epoch))

    def _listen(self, epoch: int) -> None:
        if self._training_losses.empty():
            raise RunError(
                "no losses came in to choose samples by; call cleaner.reduce(losses, index) on every batch, with a "
                "warm-up of at least one epoch, or give epochs(model) the model to probe"
            )
        self.observe(epoch, self._training_losses.observation(self.ledger))

    @property
    def progress(self) -> float:
        """Share of the run that was done before this batch: for learning rates of your own."""
        return self.epoch / self.task.epochs if self.share is None else self.share.progress

    # -- Batches ------------------------------------------------------------------------------------------------

    def loader(self, batch_size: int, *, weights: Any = None, **options: Any) -> "PlannedLoader":
        """Make a ``DataLoader`` over the samples that each epoch keeps; options pass through.

        Make it once. Every kept sample comes once an epoch, in an order and with random draws of its own, however
        many workers there are. Under torchrun each process gets its share of every batch: ``batch_size`` counts all
        of them together.

        Args:
            weights: one per sample: how likely it is drawn, as by a ``WeightedRandomSampler``; an existing one may
                be given as ``sampler=``. Dropped samples are not drawn.
        """
        weights, options = take_weights(weights, options)
        if options.get("num_workers", 0) > 0:
            options.setdefault("persistent_workers", True)
        samples = self.drawable()
        self.samples = DatasetSamples(samples.dataset, samples.plain, **options)
        return PlannedLoader(self, self._sampler(batch_size, weights), **options)

    def batch_sampler(self, batch_size: int, *, weights: Any = None) -> "PlanSampler":
        """Make batches of sample indices, for a ``DataLoader(dataset, batch_sampler=...)`` of your own."""
        self.drawable()
        if self.has_own_loss:
            raise InputError(
                f"method {self.method.name!r} does more than choose samples; take the batches from cleaner.loader(), "
                "and train on cleaner.loss(model, x)"
            )
        return self._sampler(batch_size, weights)

    def _sampler(self, batch_size: int, weights: Any) -> "PlanSampler":
        chance = None if weights is None else check_chance(weights, self.task.n)
        return PlanSampler(self, check_batch_size(batch_size, self.task.n), chance)

    def drawable(self) -> DatasetSamples:
        """Return the samples, unless they are a stream."""
        if self.samples is None:
            raise InputError(
                "a stream has no batches of ours: train on yours, and turn their losses into one by "
                "cleaner.reduce(losses, index)"
            )
        return self.samples

    def shares(self, batch_size: int, plan: Plan | None = None) -> list[Share]:
        """Deal out this rank's share of every batch of the epoch."""
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

    # -- Losses -------------------------------------------------------------------------------------------------

    def loss(self, forward: Forward, x: Any) -> Tensor:
        """Take the method's loss of the batch that :meth:`loader` just gave, whose inputs are ``x``.

        For methods that change more than the choice of samples, and for exact gradients where processes have uneven
        shares of a batch: ``cleaner.loss(model, x)`` in place of ``F.cross_entropy(model(x), y)``.
        """
        if self.share is None or self.plan is None:
            raise RunError(
                "there is no batch to take the loss of; call cleaner.loss() inside of a loop over its loader"
            )
        self.awaits_loss = False
        device, share, target = _device_of(x), self.share, self.plan.target
        y = self.task.labels[share.index].to(device)
        batch = Batch(
            x=x,
            y=y,
            target=y if target is None else target[share.index.to(target.device)].to(device),
            index=share.index.to(device),
            weight=None if share.weight is None else share.weight.to(device),
            total_weight=share.total_weight,
        )
        return self.method.loss(forward, batch)

    def reduce(self, losses: Tensor, index: Any, *, logits: Tensor | None = None) -> Tensor:
        """Take the mean loss of the kept samples of a batch; dropped ones count nothing.

        For streams and loaders that cannot be told which samples to give. The losses are remembered by sample index
        and take the place of the probe, at the price of a forward pass over dropped samples.

        Args:
            losses: one per sample, with their gradients.
            index: which samples they are: 0..n-1, the same in every epoch.
            logits: if at hand, for suggested labels in the issues.
        """
        if not self.is_on or self.plan is None:
            raise RunError("no epoch is on; call cleaner.reduce() inside `for epoch in cleaner.epochs():`")
        if self.plan.target is not None or self.method.has_own_loss:
            raise InputError(
                f"method {self.method.name!r} trains on other losses than those of the given labels: choose another, "
                "such as step-e; or give a map-style data set and train on cleaner.loss(model, x) over cleaner.loader()"
            )
        index = as_tensor(index).to(torch.int64)
        check_losses(losses, len(index) if index.ndim == 1 else 1)
        if bool(((index < 0) | (index >= self.task.n)).any()):
            raise InputError(
                f"sample {int(index.max())} is not one of 0..{self.task.n - 1}; an index is a sample's name"
            )
        on_host = index.cpu()
        labels = None if self._unnamed else self.task.labels[on_host].to(losses.device)
        tells = {} if logits is None else self.task.read(logits, labels, self.method.needs_probabilities)
        if self.judge is None:
            self._training_losses.add(losses, index, tells)
        weight = self.plan.kept.cpu()[on_host].to(losses.device, losses.dtype)
        if self.plan.weight is not None:
            weight = self.plan.weight.cpu()[on_host].to(losses)
        # Of all processes together, so that averaged gradients are those of one process.
        total = Ranks.current().mean(weight.sum())
        self.done, self.gave_batches = self.done + 1, True
        return torch.where(weight > 0, weight * losses, 0).sum() / torch.where(total > 0, total, 1)

    # -- What was found -----------------------------------------------------------------------------------------

    @property
    def issues(self) -> "pd.DataFrame":
        """The samples that look wrong, most suspicious first."""
        import pandas as pd

        if not int(self.ledger["times_probed"].max()):
            raise RunError("nothing has been probed yet; run your loop over cleaner.epochs(model) first")
        belief, warmup = self.method.make_belief(self.ledger), self.method.warmup_epochs
        table = pd.DataFrame(training_table(belief, self.ledger, self.task, warmup, self._class_names, self._names))
        if self._unnamed:  # nobody said what the labels of the stream are
            table["given_label"] = ""
        return table[table["flagged"]].sort_values("rank").reset_index(drop=True)

    # -- Saving and going on ------------------------------------------------------------------------------------

    def state_dict(self, *, batches: int | None = None, over: bool | None = None) -> dict[str, Any]:
        """Return everything needed to go on, also from the middle of an epoch: numbers, text and tensors.

        Save it beside the model and the optimizer, after a step or after an epoch. After the last batch of an epoch,
        what you do at its end counts as done. Of a stream, save it between epochs, and in each process its own.

        Args:
            batches: how many batches of the epoch are trained, if they come from a loader of your own, which may have
                fetched more of them ahead; :meth:`loader` counts for itself.
            over: whether the epoch is over, its end included; by default, if all of its batches are trained.
        """
        done = 0 if self.plan is None else self.done if batches is None else batches
        history, plan = self.history, self.plan
        row = {} if plan is None else self._row | {"seconds": time.perf_counter() - self._started}
        if plan is not None and (self._is_over(done) if over is None else over):
            history, plan, row, done = [*history, row], None, {}, 0
        return {
            "run": self._identity(),
            "history": [dict(entry) for entry in history],
            "row": row,
            "done": done,
            "batch_size": self._batch_size,
            "plan": None if plan is None else {f.name: _copy(getattr(plan, f.name)) for f in fields(plan)},
            "ledger": {name: column.clone() for name, column in self.ledger.state_dict().items()},
            "method": self.method.state_dict(),
            "training_losses": self._training_losses.state_dict(),
        }

    def _is_over(self, done: int) -> bool:
        """Say whether all of the epoch's batches are trained; a stream, which has none, is saved between epochs."""
        if self.samples is None:
            return True
        assert self.plan is not None
        world = Ranks.current().world
        return self._batch_size is not None and done >= len(batch_sizes(self.plan.count, self._batch_size, world))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; of a stream, each process from its own."""
        if (saved := state["run"]) != (now := self._identity()):
            changed = [key for key in now if saved.get(key) != now[key]]
            different = [f"{key} was {saved.get(key)!r} and is {now[key]!r}" for key in changed]
            raise RunError(f"the state was saved by another run: {'; '.join(different)}. Go on as it was")
        self.ledger.load_state_dict(state["ledger"])
        self.method.load_state_dict(state["method"])
        self.history, self._row = [dict(entry) for entry in state["history"]], dict(state["row"])
        self._started = time.perf_counter() - self._row.get("seconds", 0.0)
        self.plan = None if state["plan"] is None else Plan(**state["plan"])
        self.done = self.skip = state["done"]
        self._batch_size = state["batch_size"] if self.done else None
        self._training_losses.load_state_dict(state["training_losses"])

    def _identity(self) -> Row:
        """Describe what a run that goes on must share with the one that was saved."""
        return {
            "samples": self.task.n,
            "epochs": self.task.epochs,
            "method": self.method.name,
            "seed": self.task.seed,
            "length": self.length,
        }


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


def _device_of(x: Any) -> torch.device:
    """Find where the first tensor of a batch lies."""
    if isinstance(x, Tensor):
        return x.device
    inner = x.values() if isinstance(x, dict) else x if isinstance(x, list | tuple) else ()
    return next((_device_of(value) for value in inner), torch.device("cpu"))
