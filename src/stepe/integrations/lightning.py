"""Step-E in Lightning: a callback and its loader; the module stays as it is.

.. code-block:: python

    cleaner = StepE(train, epochs=60, rho_max=0.4)
    trainer = L.Trainer(max_epochs=60, callbacks=[cleaner])
    trainer.fit(module, cleaner.loader(batch_size=128), validation)
    cleaner.issues.to_csv("issues.csv")

Lightning counts batches once, at the start. The callback counts again before every epoch, or validation would stop
without a word once epochs get shorter.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from stepe.errors import InputError
from stepe.integrations import missing
from stepe.integrations.loader import PlannedLoader
from stepe.integrations.probing import AskedJudge, BatchForward, Probing
from stepe.integrations.torch import ELSEWHERE
from stepe.integrations.torch import StepE as Cleaner
from stepe.methods import Criterion, Method
from stepe.methods.doors import DEFAULT_METHOD
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

try:
    import lightning.pytorch as L
    from lightning.pytorch.utilities import rank_zero_warn
except ImportError as error:
    raise missing("lightning") from error

if TYPE_CHECKING:
    import pandas as pd

NOT_OF_LOOPS = {"self", "dataset", "forward", "probe_batch_size", "__class__"}
"""what the callback takes for itself"""


class StepE(L.Callback):
    """Chooses, before every epoch, which samples the trainer trains on.

    Args:
        dataset: a map-style data set returning ``(x, y)``.
        epochs: the trainer's ``max_epochs``.
        length: ``full`` repeats kept samples up to the length of the data set, so that rates that were planned by steps
            end where they should; ``kept`` trains on each of them once.
        forward: (module, batch) -> one loss per sample, or (losses, logits), if cross-entropy of ``module(x)`` is not
            yours.

    The other options are those of :class:`stepe.StepE`.
    """

    @checked_beside(ELSEWHERE)
    def __init__(
        self,
        dataset: Any,
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
        length: Literal["kept", "full"] = "full",
        seed: Seed = 0,
        forward: BatchForward | None = None,
        probe_batch_size: int = 512,
    ):
        options = {name: value for name, value in locals().items() if name not in NOT_OF_LOOPS}
        self.cleaner = Cleaner(dataset, **options)
        self._probing = Probing(forward, probe_batch_size)
        self._loader: Batches | None = None
        self._trained = 0

    def loader(self, batch_size: int, **options: Any) -> "Batches":
        """Make what ``trainer.fit`` takes; options are those of ``DataLoader``, and ``weights``.

        ``batch_size`` counts the samples of all processes together.
        """
        self._loader = Batches(self.cleaner.loader(batch_size, **options))
        return self._loader

    @property
    def issues(self) -> "pd.DataFrame":
        """The samples that look wrong, most suspicious first."""
        return self.cleaner.issues

    @property
    def history(self) -> list[dict[str, Any]]:
        """One row an epoch."""
        return self.cleaner.history

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Refuse what does not fit together; an epoch that was saved in its middle goes on."""
        if trainer.train_dataloader is not self._loader or self._loader is None:
            raise InputError(
                "the trainer trains on another loader: trainer.fit(module, cleaner.loader(batch_size=...))"
            )
        epochs = self.cleaner.task.epochs
        if trainer.max_epochs != epochs and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            raise InputError(
                f"the trainer has max_epochs={trainer.max_epochs} and StepE epochs={epochs}; make them equal, because "
                "the share that is dropped grows with the epochs"
            )
        if self.cleaner.has_own_loss:
            raise InputError(
                f"method {self.cleaner.method.name!r} does more than choose samples, and a module has its own loss; "
                "use stepe.fit(), or a loop of your own with cleaner.loss(model, x)"
            )
        by_step = any(config.interval == "step" for config in trainer.lr_scheduler_configs)
        if by_step and self.cleaner.length == "kept":
            rank_zero_warn(
                "the learning rate was planned by steps, and epochs get shorter as samples are dropped: it will not "
                'end where it should; use StepE(length="full"), or a scheduler that counts epochs'
            )
        self.cleaner.is_on = True

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Probe, select, and have the trainer count the batches anew."""
        self.cleaner.open_epoch(lambda epoch: self.cleaner.probe(pl_module, epoch, self._probing))
        self._trained = 0
        self._count(trainer)
        assert self.cleaner.plan is not None
        pl_module.log("stepe/kept", float(self.cleaner.plan.kept.sum()))

    def _count(self, trainer: L.Trainer) -> None:
        """Count the steps of this epoch, after limits, as the trainer did once when it set up its data."""
        assert self._loader is not None
        loop, planned, limit = trainer.fit_loop, len(self._loader.loader), trainer.limit_train_batches
        steps = min(planned, limit) if isinstance(limit, int) else max(1, int(planned * limit))
        self._loader.length = loop.max_batches = steps
        assert loop._combined_loader is not None
        assert loop._data_fetcher is not None
        if (limits := loop._combined_loader.limits) is not None:
            limits[:] = [steps]
        loop._data_fetcher.reset()
        interval = trainer.val_check_interval
        if isinstance(interval, float):
            trainer.val_check_batch = max(1, int(steps * interval))
        elif trainer.check_val_every_n_epoch is not None:  # counted within an epoch
            trainer.val_check_batch = min(interval, steps)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Remember how far the epoch has come."""
        self._trained = batch_idx + 1

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write the epoch down, unless the checkpoint that was taken up did."""
        if self.cleaner.plan is not None:
            self.cleaner.end_epoch()

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Probe the finished model: the last word on every sample."""
        self.cleaner.is_on = False
        if not trainer.fast_dev_run:  # type: ignore[attr-defined]
            self.cleaner.probe(pl_module, self.cleaner.task.epochs, self._probing)

    def state_dict(self) -> dict[str, Any]:
        """Return what the trainer's checkpoints hold. Whether an epoch is over, the trainer says when it goes on."""
        length = None if self._loader is None else self._loader.length
        return self.cleaner.state_dict(batches=self._trained, over=False) | {"length": length}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint, also from the middle of an epoch."""
        self.cleaner.load_state_dict(state_dict)
        self._trained = self.cleaner.done
        if self._loader is not None:
            self._loader.length = state_dict["length"]


class Batches:
    """The planned batches, as something Lightning leaves alone: it replaces the sampler of a ``DataLoader``."""

    def __init__(self, loader: PlannedLoader):
        self.loader = loader
        self.length: int | None = None
        """of the last epoch that began: a trainer that goes on asks before the next one does"""

    def __len__(self) -> int:
        return len(self.loader) if self.length is None else self.length

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.loader)  # lazily: the iterator is made before the epoch has begun

    def state_dict(self) -> dict[str, Any]:
        """Say that it can go on in the middle of an epoch; the callback knows where."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Do nothing."""
