"""Step-E inside a training loop of your own.

.. code-block:: python

    cleaner = stepe.StepE(train, epochs=60, rho_max=0.45)
    loader = cleaner.loader(batch_size=128, num_workers=4)
    for epoch in cleaner.epochs(model):       # probes and selects
        for x, y in loader:                   # your loop, untouched
            ...
    cleaner.issues().to_csv("issues.csv")
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler

from stepe.data.samples import (
    DatasetSamples,
    Draw,
    DrawnDataset,
    check_labels,
    check_returned,
    check_view,
    draws,
    read_labels,
)
from stepe.engine.eager import to_device
from stepe.errors import InputError, RunError
from stepe.issues import Names, training_table
from stepe.ledger import Ledger
from stepe.methods import Method, Task, make_method
from stepe.plan import Plan, batch_sizes
from stepe.probe import probe
from stepe.randomness import Stream
from stepe.schedule import check_epochs
from stepe.training import Row, check_batch_size, check_groups, cross_entropy

if TYPE_CHECKING:
    import pandas as pd

BatchForward = Callable[[nn.Module, Any], "Tensor | tuple[Tensor, Tensor]"]
"""(model, batch) -> one loss per sample, or (losses, logits)"""


class StepE:
    """Chooses, before every epoch, which samples your loop trains on.

    It takes the data set and owns the probe, because a probe that is not aligned with the data set by index would
    drop the wrong samples without a sign of it.

    Args:
        dataset: a map-style data set returning ``(x, y)``.
        epochs: how many epochs you will train.
        method: ``step-e``, or another method that selects samples; options follow by keyword.
        rho_max: largest share ever dropped; ``noise_rate``, a known share of wrong labels, may stand in for it.
        labels: one integer per sample; by default the data set's ``targets`` or ``labels``, or what it returns.
        groups: one integer per sample for ``min_keep``; by default the class.
        class_names: for the issues; by default the numbers.
        ids: what to call the samples in the issues; by default their positions.
        plain_view: the same samples without augmentation, for ``view="plain"``.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        epochs: int,
        method: str | Method = "step-e",
        noise_rate: float | None = None,
        labels: Any = None,
        groups: Any = None,
        class_names: list[str] | None = None,
        ids: list[str] | None = None,
        plain_view: Any = None,
        seed: int = 0,
        **method_options: Any,
    ):
        self._samples = DatasetSamples(dataset, plain_view)
        given = check_labels(read_labels(dataset) if labels is None else labels, len(self._samples))
        if labels is not None:
            check_returned(dataset, given, "the labels you gave")
        check_epochs(epochs, warmup=0)
        self.task = Task(
            labels=given,
            classes=int(given.max()) + 1,
            epochs=epochs,
            seed=seed,
            criterion=cross_entropy(int(given.max()) + 1),
            noise_rate=noise_rate,
            groups=None if groups is None else check_groups(groups, len(self._samples)),
        )
        self.method = make_method(method, **method_options)
        if type(self.method).loss is not Method.loss:
            raise InputError(f"method {self.method.name!r} changes the loss, which a loader cannot do; use stepe.fit()")
        if getattr(self.method, "softness", 0):
            raise InputError("softness weights the samples, which a loader cannot do; use stepe.fit(), or softness=0")
        self.ledger = Ledger(self.task.n)
        self.method.start(self.task, self.ledger)
        check_view(self._samples, self.method.view)
        self.history: list[Row] = []
        self.plan: Plan | None = None
        """what the current epoch trains on; ``None`` between runs of :meth:`epochs`"""
        self._class_names = class_names or [str(label) for label in range(self.task.classes)]
        if len(self._class_names) < self.task.classes:
            raise InputError(f"there are {len(self._class_names)} class names for {self.task.classes} classes")
        self._names = Names.numbered(self.task.n)
        if ids is not None:
            if len(ids) != self.task.n:
                raise InputError(f"there are {len(ids)} ids for {self.task.n} samples; give one per sample")
            self._names = Names([str(name) for name in ids], list(range(self.task.n)))

    def loader(self, batch_size: int, **options: Any) -> DataLoader[Any]:
        """A ``DataLoader`` over the samples this epoch keeps; options pass through.

        Make it once. Every kept sample comes once an epoch, in an order and with random draws of its own, however
        many workers there are.
        """
        if options.get("num_workers", 0) > 0:
            options.setdefault("persistent_workers", True)
        self._samples = DatasetSamples(self._samples.dataset, self._samples.plain, **options)
        sampler = _PlanSampler(self, check_batch_size(batch_size, self.task.n))
        # A generator of its own, so that iterating does not advance the global one.
        return DataLoader(
            DrawnDataset(self._samples.dataset), batch_sampler=sampler, generator=torch.Generator(), **options
        )

    def epochs(
        self, model: nn.Module, *, forward: BatchForward | None = None, probe_batch_size: int = 512
    ) -> Iterator[int]:
        """Yields the epochs; before each, probes the model if the method asks and selects what to train on.

        ``forward`` turns (model, batch) into one loss per sample, or into (losses, logits), if cross-entropy of
        ``model(x)`` is not yours.
        """
        probe_batch_size = check_batch_size(probe_batch_size, self.task.n)
        try:
            for epoch in range(len(self.history), self.task.epochs):
                row = self._begin_epoch(model, epoch, forward, probe_batch_size)
                yield epoch
                self.history.append(row)
        finally:
            self.plan = None
        self._probe(model, self.task.epochs, forward, probe_batch_size)

    def _begin_epoch(self, model: nn.Module, epoch: int, forward: BatchForward | None, probe_batch_size: int) -> Row:
        probed = self.method.wants_probe(epoch)
        if probed:
            self._probe(model, epoch, forward, probe_batch_size)
        plan = self.method.plan(epoch, self.ledger)
        if plan.weight is not None or plan.target is not None:
            raise InputError(
                f"method {self.method.name!r} gives samples weights or targets, which a loader cannot carry; "
                "use stepe.fit()"
            )
        self.plan = plan
        turnover = self.ledger.record_selection(plan.kept)
        kept = int(plan.kept.sum())
        return {"epoch": epoch, "probed": probed, "kept": kept, "dropped": self.task.n - kept, **asdict(turnover)}

    def issues(self) -> "pd.DataFrame":
        """The samples that look wrong, most suspicious first."""
        import pandas as pd

        if not int(self.ledger["times_probed"].max()):
            raise RunError("nothing has been probed yet; run your loop over cleaner.epochs(model) first")
        after_warmup = self.task.epochs - self.method.warmup_epochs
        noise = self.method.noise(self.ledger)
        table = pd.DataFrame(
            training_table(self.ledger, self.task.labels, self._class_names, self._names, after_warmup, noise)
        )
        return table[table["flagged"]].sort_values("rank").reset_index(drop=True)

    def _probe(self, model: nn.Module, epoch: int, forward: BatchForward | None, batch_size: int) -> None:
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        stream = Stream.named(self.task.seed, "probe", epoch)
        parts = torch.split(torch.arange(self.task.n), batch_size)

        def batches() -> Iterator[tuple[Tensor, Any]]:
            for part, batch in zip(parts, self._samples.fetch_batches(parts, stream, self.method.view), strict=True):
                yield part, (to_device(batch, device), self.task.labels[part].to(device))

        def judge(pair: tuple[Any, Tensor]) -> tuple[Tensor, Tensor | None, Tensor | None]:
            batch, labels = pair
            if forward is None:
                if not isinstance(batch, list | tuple):
                    raise InputError(
                        f"a batch is a {type(batch).__name__}, not (inputs, labels); say how it becomes one loss per "
                        "sample: cleaner.epochs(model, forward=lambda model, batch: ...)"
                    )
                logits = model(batch[0])
                return self.task.criterion(logits, labels), logits, labels
            seen = forward(model, batch)
            return (*seen, labels) if isinstance(seen, tuple) else (seen, None, None)

        seen = probe(
            model,
            batches(),
            self.task.n,
            judge,
            stream=stream,
            device=device,
            probabilities=self.method.needs_probabilities,
        )
        if not bool(torch.isfinite(seen.loss).any()):
            raise RunError(f"every loss is NaN or infinite before epoch {epoch}; lower the learning rate")
        self.method.observe(seen, self.ledger)


class _PlanSampler(Sampler[list[Draw]]):
    """Carries out the current plan of a :class:`StepE`."""

    def __init__(self, cleaner: StepE, batch_size: int):
        self.cleaner, self.batch_size = cleaner, batch_size

    def __len__(self) -> int:
        plan = self.cleaner.plan
        count = self.cleaner.task.n if plan is None else int(plan.kept.sum())
        return len(batch_sizes(count, self.batch_size))

    def __iter__(self) -> Iterator[list[Draw]]:
        plan = self.cleaner.plan
        if plan is None:
            raise RunError("no epoch is on; iterate over the loader inside `for epoch in cleaner.epochs(model):`")
        stream = Stream.named(self.cleaner.task.seed, "augment", plan.epoch)
        for share in plan.batches(self.batch_size):
            yield draws(share.index, stream)
