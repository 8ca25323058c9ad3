"""Step-E in transformers: a ``Trainer`` to put in the place of yours.

.. code-block:: python

    trainer = StepETrainer(model=model, args=args, train_dataset=train, rho_max=0.4)
    trainer.train()
    trainer.issues.to_csv("issues.csv")

The trainer counts steps once, at the start, for its learning rate and for finding its place again. By default kept
samples are therefore repeated up to the length of the data set; with ``length="kept"`` the count is corrected.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from stepe.engine.learning_rate import TorchRate
from stepe.errors import InputError
from stepe.integrations import missing
from stepe.integrations.probing import BatchForward, Probing
from stepe.integrations.torch import StepE
from stepe.loop.plan import batch_sizes
from stepe.samples.samples import check_map_style

try:
    from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_utils import get_last_checkpoint
except ImportError as error:
    raise missing("transformers") from error

if TYPE_CHECKING:
    import pandas as pd

STATE = "stepe.pt"
LABELS = ("labels", "label")


class StepETrainer(Trainer):
    """A ``Trainer`` that chooses, before every epoch, which samples to train on.

    Args:
        rho_max: largest share ever dropped; without it, and without ``stepe={"noise_rate": ...}``, it is found out.
        length: ``full`` repeats kept samples up to the length of the data set, ``kept`` trains on each of them once.
        forward: (model, batch) -> one loss per sample, or (losses, logits), if cross-entropy of the model's logits is
            not yours.
        stepe: further options of :class:`stepe.StepE` (``warmup``, ``schedule``, ``min_keep``, ``class_names``...).
        options: those of ``Trainer``.
    """

    def __init__(
        self,
        *args: Any,
        rho_max: float | Literal["auto"] | None = None,
        length: Literal["kept", "full"] = "full",
        forward: BatchForward | None = None,
        probe_batch_size: int | None = None,
        stepe: dict[str, Any] | None = None,
        **options: Any,
    ):
        super().__init__(*args, **options)
        self.cleaner: StepE | None = None
        self._options = {"length": length, "seed": self.args.seed} | (stepe or {})
        if rho_max is not None:
            self._options["rho_max"] = rho_max
        self._probing = Probing(forward or self._judge, probe_batch_size or 4 * self.args.train_batch_size)
        self._resumed: str | None = None
        self.add_callback(_Selecting(self))

    @property
    def issues(self) -> "pd.DataFrame":
        """The samples that look wrong, most suspicious first."""
        return self._cleaner.issues

    @property
    def _cleaner(self) -> StepE:
        if self.cleaner is None:
            raise InputError("nothing was trained yet; call trainer.train() first")
        return self.cleaner

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **options: Any) -> Any:
        """Train, or go on from a checkpoint, also from the middle of an epoch."""
        found = resume_from_checkpoint
        if found is True:
            found = get_last_checkpoint(self.args.output_dir)  # type: ignore[no-untyped-call]
        self._resumed = found or None
        return super().train(resume_from_checkpoint, *args, **options)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Make the planned batches, with data set, collator and workers of the trainer's own loader."""
        strategy = getattr(self.args, "train_sampling_strategy", "random")
        if strategy != "random":
            raise InputError(
                f"train_sampling_strategy={str(strategy)!r} would choose samples beside the plan; leave it at 'random'"
            )
        check_map_style(self.train_dataset)
        theirs = super().get_train_dataloader()
        labels = _labels(self.train_dataset)
        batch_size = min(self._train_batch_size * self.args.world_size, len(labels))
        epochs = self._epochs(len(labels), batch_size)
        self.cleaner = StepE(theirs.dataset, labels=labels, epochs=epochs, **self._options)
        if self.cleaner.has_own_loss:
            raise InputError(
                f"method {self.cleaner.method.name!r} does more than choose samples, and the trainer has its own loss; "
                "use stepe.fit(), or a loop of your own with cleaner.loss(model, x)"
            )
        options: dict[str, Any] = {"collate_fn": theirs.collate_fn, "pin_memory": self.args.dataloader_pin_memory}
        if theirs.num_workers:
            options |= {"num_workers": theirs.num_workers, "prefetch_factor": theirs.prefetch_factor}
        loader = self.cleaner.loader(batch_size, **options)
        loader.planned.may_be_remade = True  # to skip what was trained, the trainer makes another loader of it
        return loader

    def _epochs(self, n: int, batch_size: int) -> int:
        if self.args.max_steps <= 0:
            return math.ceil(self.args.num_train_epochs)
        return math.ceil(self.args.max_steps / self._updates(len(batch_sizes(n, batch_size, self.args.world_size))))

    def _updates(self, batches: int) -> int:
        """Count the optimizer steps for so many batches."""
        return math.ceil(batches / self.args.gradient_accumulation_steps)

    # -- A kept set that shrinks: the trainer's own counts, corrected ----------------------------------------------

    def _init_training_state(self, *args: Any, **options: Any) -> tuple[int, int]:
        """Say where to go on: the trainer would divide its steps by those of a full epoch."""
        found: tuple[int, int] = super()._init_training_state(*args, **options)
        self.take_up()
        cleaner = self._cleaner
        return found if cleaner.length == "full" or self._resumed is None else (cleaner.epoch, cleaner.done)

    def _run_epoch(self, *args: Any, **options: Any) -> Any:
        """Run one epoch, as long as it is now."""
        cleaner = self._cleaner
        if cleaner.length == "kept":
            batches = len(options["train_dataloader"])
            options |= {"steps_in_epoch": batches, "num_update_steps_per_epoch": self._updates(batches)}
            assert isinstance(self.lr_scheduler, InPace)
            self.lr_scheduler.begin_epoch(cleaner.epoch, self._updates(batches), self._updates(cleaner.done))
        return super()._run_epoch(*args, **options)  # type: ignore[no-untyped-call]

    def create_scheduler(self, num_training_steps: int, *args: Any, **options: Any) -> Any:
        """Make the trainer's scheduler, and keep it in pace with epochs that get shorter."""
        made = super().create_scheduler(num_training_steps, *args, **options)
        if self._options["length"] == "kept" and not isinstance(made, InPace):
            self.lr_scheduler = InPace(made, num_training_steps, self._cleaner.task.epochs)  # type: ignore[assignment]
        return self.lr_scheduler

    # -- What the callback asks for ------------------------------------------------------------------------------

    def _judge(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        labels = next((batch[name] for name in LABELS if name in batch), None)
        with self.compute_loss_context_manager():
            outputs = model(**{name: value for name, value in batch.items() if name not in LABELS})
        logits = outputs.get("logits") if isinstance(outputs, dict) else None
        if labels is None or not isinstance(logits, Tensor) or logits.ndim != 2:
            found = tuple(logits.shape) if isinstance(logits, Tensor) else type(outputs).__name__
            raise InputError(
                f"the model returned {found}, not one logit per class and sample; say how a batch becomes one loss per "
                "sample: StepETrainer(forward=lambda model, batch: ...)"
            )
        return F.cross_entropy(logits.float(), labels, reduction="none"), logits

    def take_up(self) -> None:
        """Load what the checkpoint that training goes on from says, once."""
        if self._resumed is None or self._cleaner.history or self._cleaner.plan is not None:
            return
        path = Path(self._resumed) / STATE
        if not path.exists():
            raise InputError(f"{path} is not there: the checkpoint was written by another trainer; start anew")
        self._cleaner.load_state_dict(torch.load(path, weights_only=True))
        self._cleaner.skip = 0  # the trainer skips by itself

    def begin_epoch(self) -> None:
        """Probe and select."""
        self._cleaner.open_epoch(self._observe)

    def last_word(self) -> None:
        """Probe the finished model."""
        self._observe(self._cleaner.task.epochs)

    def _observe(self, epoch: int) -> None:
        assert isinstance(self.model, nn.Module)
        self._cleaner.probe(self.model, epoch, self._probing)


class _Selecting(TrainerCallback):
    """Tells the trainer's cleaner how far training has come."""

    def __init__(self, trainer: StepETrainer):
        self.trainer = trainer
        self.batches = 0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.trainer.take_up()
        self.trainer._cleaner.is_on = True

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.batches = self.trainer._cleaner.done
        self.trainer.begin_epoch()

    def on_substep_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.batches += 1

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.batches += 1

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.trainer._cleaner.end_epoch()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        if args.should_save and folder.is_dir():
            torch.save(self.trainer._cleaner.state_dict(batches=self.batches), folder / STATE)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.trainer._cleaner.is_on = False
        self.trainer.last_word()


class InPace(TorchRate):
    """A scheduler that counts the steps of full epochs, advanced in proportion to epochs that get shorter."""

    def __init__(self, scheduler: Any, total: int, epochs: int):
        super().__init__(scheduler, total, last=total)
        self.epochs = epochs
        self.begin_epoch(0, 1, 0)

    def begin_epoch(self, epoch: int, updates: int, updated: int) -> None:
        """Begin an epoch of so many updates, or go on after some of them."""
        self._epoch, self._updates, self._updated = epoch, updates, updated

    def step(self) -> None:
        """Catch up with the run."""
        self._updated += 1
        self.after_step((self._epoch + self._updated / self._updates) / self.epochs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.scheduler, name)


def _labels(dataset: Any) -> Any:
    """Read the labels of a data set of dicts, by the names the library gives them."""
    columns = getattr(dataset, "column_names", None)
    for name in LABELS:
        if columns is not None and name in columns:
            return dataset.with_format(None)[name][:]
        if columns is None and isinstance(dataset[0], dict) and name in dataset[0]:
            return [int(dataset[index][name]) for index in range(len(dataset))]
    raise InputError("the training data has no column 'label' or 'labels'; rename the one that holds the classes")
