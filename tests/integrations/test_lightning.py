"""Step-E under a real Lightning trainer, while the kept set shrinks to 40%."""

import inspect
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from shrinking import (
    BATCH,
    EPOCHS,
    KEPT,
    SHRINKS,
    N,
    Recorded,
    assert_trained,
    clouds,
    network,
    probed_apart,
    sources,
    untimed,
)
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import stepe
from processes import printed_by
from stepe import InputError
from stepe.loop.plan import batch_sizes

L = pytest.importorskip("lightning.pytorch")
from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402
from lightning.pytorch.loggers import CSVLogger  # noqa: E402

from stepe.integrations.lightning import StepE  # noqa: E402

ROOT = Path(__file__).parents[2]


class Module(L.LightningModule):
    """As people write them, with a record of what happened."""

    def __init__(self, interval: str = "step") -> None:
        super().__init__()
        self.model, self.interval = network(), interval
        self.validated: list[int] = []
        self.stepped = 0
        self.unstepped = 0

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)

    def training_step(self, batch: Any, index: int) -> Tensor:
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("loss", loss)
        self.unstepped += 1
        return loss

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.stepped, self.unstepped = self.stepped + 1, 0

    def validation_step(self, batch: Any, index: int) -> None:
        if index == 0 and not self.trainer.sanity_checking:
            self.validated.append(self.trainer.current_epoch)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        steps = self.trainer.estimated_stepping_batches if self.interval == "step" else EPOCHS
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": self.interval}}


class Watch(L.Callback):
    """What was fetched in each epoch, against what was kept."""

    def __init__(self, cleaner: StepE, data: Recorded):
        self.cleaner, self.data = cleaner, data
        self.counts: list[Tensor] = []
        self.kept: list[Tensor] = []
        self.now: Tensor | None = None

    def on_train_batch_end(self, trainer, *rest) -> None:
        self.now = self.cleaner.cleaner.plan.kept.clone()

    def on_train_epoch_end(self, trainer, module) -> None:
        self.counts.append(self.data.take())
        self.kept.append(self.now)


def trainer(tmp_path: Path, *callbacks: Any, **options: Any) -> Any:
    settings = {
        "max_epochs": EPOCHS,
        "accelerator": "cpu",
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": any(isinstance(callback, ModelCheckpoint) for callback in callbacks),
        "default_root_dir": tmp_path,
    }
    return L.Trainer(callbacks=list(callbacks), **settings | options)


def validation() -> DataLoader[Any]:
    return DataLoader(TensorDataset(*clouds(32)), batch_size=16)


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("length", ["kept", "full"])
@pytest.mark.parametrize("workers", [0, 2])
def test_validation_runs_every_epoch_while_the_kept_set_shrinks(tmp_path, length, workers):
    training, probed = sources()
    cleaner = StepE(training, length=length, **probed_apart(training, probed))
    module, watch = Module("step" if length == "full" else "epoch"), Watch(cleaner, training)
    fit = trainer(tmp_path, cleaner, watch)
    training.take()
    fit.fit(module, cleaner.loader(BATCH, num_workers=workers), validation())
    assert module.validated == list(range(EPOCHS))
    for counts, kept in zip(watch.counts, watch.kept, strict=True):
        assert_trained(counts, kept, length)
    assert [row["kept"] for row in cleaner.history][::5] == [N, KEPT]
    assert int(probed.fetched.sum()) == EPOCHS * N
    assert fit.optimizers[0].param_groups[0]["lr"] == pytest.approx(0, abs=1e-9)
    assert len(cleaner.issues)


def test_the_kept_sets_are_those_of_a_plain_loop(tmp_path):
    import stepe

    cleaner = StepE(Recorded(*clouds()), length="kept", **SHRINKS)
    trainer(tmp_path, cleaner).fit(Module("epoch"), cleaner.loader(BATCH), validation())

    plain, model = stepe.StepE(Recorded(*clouds()), **SHRINKS), network()
    loader = plain.loader(BATCH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=EPOCHS)
    for _ in plain.epochs(model):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        scheduler.step()
    for name, column in plain.ledger.state_dict().items():
        torch.testing.assert_close(cleaner.cleaner.ledger[name], column, equal_nan=True)


@pytest.mark.parametrize("length", ["kept", "full"])
def test_accumulation_leaves_no_gradient_unstepped(tmp_path, length):
    cleaner = StepE(Recorded(*clouds()), length=length, **SHRINKS)
    module = Module("epoch")
    fit = trainer(tmp_path, cleaner, accumulate_grad_batches=4)
    fit.fit(module, cleaner.loader(BATCH), validation())
    assert module.unstepped == 0
    trained = [N if length == "full" else row["kept"] for row in cleaner.history]
    assert module.stepped == sum(-(-len(batch_sizes(count, BATCH)) // 4) for count in trained)
    assert module.validated == list(range(EPOCHS))


@pytest.mark.parametrize(("limit", "expected"), [(2, [2] * EPOCHS), (0.5, None)])
def test_limits_hold_and_validation_goes_on(tmp_path, limit, expected):
    cleaner = StepE(Recorded(*clouds()), length="kept", **SHRINKS)
    module = Module("epoch")
    fit = trainer(tmp_path, cleaner, limit_train_batches=limit)
    fit.fit(module, cleaner.loader(BATCH), validation())
    planned = [len(batch_sizes(row["kept"], BATCH)) for row in cleaner.history]
    assert module.validated == list(range(EPOCHS))
    assert fit.global_step == sum(expected or [max(1, int(steps * 0.5)) for steps in planned])


@pytest.mark.parametrize("interval", [0.5, 5])
def test_validation_within_an_epoch_follows_its_length(tmp_path, interval):
    cleaner = StepE(Recorded(*clouds()), length="kept", **SHRINKS)
    module = Module("epoch")
    trainer(tmp_path, cleaner, val_check_interval=interval).fit(module, cleaner.loader(BATCH), validation())
    assert set(module.validated) == set(range(EPOCHS))


def test_a_fast_run_is_fast(tmp_path):
    training, probed = sources()
    cleaner = StepE(training, **probed_apart(training, probed))
    module = Module()
    training.take()
    trainer(tmp_path, cleaner, fast_dev_run=True).fit(module, cleaner.loader(BATCH), validation())
    assert int(training.fetched.sum()) == BATCH
    assert int(probed.fetched.sum()) == 0
    assert module.validated == [0]


def test_without_a_warm_up_the_first_epoch_is_short_already(tmp_path):
    cleaner = StepE(Recorded(*clouds()), length="kept", epochs=2, rho_max=0.5, warmup=0, ramp_end=1, schedule="early")
    module = Module("epoch")
    fit = trainer(tmp_path, cleaner, max_epochs=2)
    fit.fit(module, cleaner.loader(BATCH), validation())
    assert module.validated == [0, 1]
    assert module.unstepped == 0


def test_loggers_see_the_kept_samples(tmp_path):
    cleaner = StepE(Recorded(*clouds()), **SHRINKS)
    logger = CSVLogger(tmp_path, name="log")
    trainer(tmp_path, cleaner, logger=logger, log_every_n_steps=1).fit(Module(), cleaner.loader(BATCH), validation())
    assert f",{float(KEPT)}" in Path(logger.log_dir, "metrics.csv").read_text()


# ---------------------------------------------------------------------------------------------------------------
# Checkpoints


class Stop(Exception):  # noqa: N818
    """Ends a run in its middle."""


class StopAt(L.Callback):
    def __init__(self, step: int):
        self.step = step

    def on_train_batch_end(self, trainer, *rest) -> None:
        if trainer.global_step == self.step:
            trainer.save_checkpoint(Path(trainer.default_root_dir) / "stopped.ckpt")
            raise Stop

    def on_train_epoch_end(self, trainer, module) -> None:
        if trainer.global_step == self.step:
            raise Stop


@pytest.mark.parametrize("length", ["kept", "full"])
@pytest.mark.parametrize("after", [2, 8, 14])
def test_a_run_goes_on_in_the_middle_of_an_epoch(tmp_path, length, after):
    interval = "step" if length == "full" else "epoch"
    training, probed = sources()
    reference = Module(interval)
    cleaner = StepE(training, length=length, **probed_apart(training, probed))
    watch = Watch(cleaner, training)
    training.take()
    trainer(tmp_path, cleaner, watch).fit(reference, cleaner.loader(BATCH), validation())
    through = torch.stack(watch.counts)

    training, probed = sources()
    cleaner = StepE(training, length=length, **probed_apart(training, probed))
    watch = Watch(cleaner, training)
    training.take()
    with pytest.raises(Stop):
        trainer(tmp_path, cleaner, watch, StopAt(after)).fit(Module(interval), cleaner.loader(BATCH), validation())
    before = [*watch.counts, training.take()]

    module = Module(interval)
    cleaner = StepE(training, length=length, **probed_apart(training, probed))
    watch = Watch(cleaner, training)
    training.take()
    fit = trainer(tmp_path, cleaner, watch)
    fit.fit(module, cleaner.loader(BATCH), validation(), ckpt_path=tmp_path / "stopped.ckpt", weights_only=True)
    rest = watch.counts
    counts = torch.stack([*before[:-1], before[-1] + rest[0], *rest[1:]])
    assert torch.equal(counts, through)
    assert int(probed.fetched.sum()) == EPOCHS * N  # before and after: no probe twice
    assert [row["epoch"] for row in cleaner.history] == list(range(EPOCHS))
    for here, there in zip(module.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(here, there)
    assert module.validated[-1] == EPOCHS - 1


@pytest.mark.parametrize("at_end_of_training_epoch", [True, False], ids=["after the epoch", "after validation"])
@pytest.mark.parametrize("length", ["kept", "full"])
def test_a_run_goes_on_from_the_checkpoint_of_an_epoch(tmp_path, at_end_of_training_epoch, length):
    interval = "step" if length == "full" else "epoch"
    training, probed = sources()
    reference = Module(interval)
    cleaner = StepE(training, length=length, **probed_apart(training, probed))
    keep = ModelCheckpoint(
        tmp_path, filename="{epoch}", save_top_k=-1, save_on_train_epoch_end=at_end_of_training_epoch
    )
    trainer(tmp_path, cleaner, keep).fit(reference, cleaner.loader(BATCH), validation())

    module, again = Module(interval), StepE(training, length=length, **probed_apart(training, probed))
    watch = Watch(again, training)
    training.take()
    fit = trainer(tmp_path, again, watch)
    fit.fit(module, again.loader(BATCH), validation(), ckpt_path=tmp_path / "epoch=2.ckpt", weights_only=True)
    assert [row["epoch"] for row in again.history] == list(range(EPOCHS))
    assert untimed(again.history) == untimed(cleaner.history)
    assert int(torch.stack(watch.counts).sum()) == (
        3 * N if length == "full" else sum(r["kept"] for r in again.history[3:])
    )
    for here, there in zip(module.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(here, there)


# ---------------------------------------------------------------------------------------------------------------
# Several processes


DISTRIBUTED = """
import json, sys
from pathlib import Path
sys.path[:0] = {paths!r}
import lightning.pytorch as L
import torch
from processes import leave_group
from shrinking import BATCH, EPOCHS, SHRINKS, Recorded, clouds
from test_lightning import Module, trainer, validation
from stepe.integrations.lightning import StepE

torch.set_num_threads(1)
cleaner = StepE(Recorded(*clouds()), length={length!r}, **SHRINKS)
module = Module("epoch")
seen = []

class Seen(L.Callback):
    def on_train_epoch_start(self, trainer, module):
        seen.append([])
    def on_train_batch_end(self, *rest):
        seen[-1].append(cleaner.cleaner.share.index.tolist())

fit = trainer(Path({folder!r}), cleaner, Seen(), strategy="ddp", devices=2)
fit.fit(module, cleaner.loader(BATCH), validation())
Path({folder!r}, f"rank{{fit.global_rank}}.json").write_text(json.dumps({{
    "world": fit.world_size, "seen": seen, "kept": [row["kept"] for row in cleaner.history],
    "validated": module.validated, "dropped": cleaner.cleaner.ledger["dropped"].tolist()}}))
leave_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("length", ["kept", "full"])
def test_two_processes_share_the_kept_samples(tmp_path, length):
    script = tmp_path / "run.py"
    paths = [str(ROOT / "src"), str(Path(__file__).parent), str(ROOT / "tests")]
    script.write_text(DISTRIBUTED.format(paths=paths, folder=str(tmp_path), length=length))
    printed_by(script, tmp_path)
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2))
    assert first["world"] == second["world"] == 2
    assert first["dropped"] == second["dropped"]
    assert first["kept"] == second["kept"]
    assert first["kept"][::5] == [N, KEPT]
    assert first["validated"] == second["validated"] == list(range(EPOCHS))
    for epoch in range(EPOCHS):
        mine, other = first["seen"][epoch], second["seen"][epoch]
        count = N if length == "full" else first["kept"][epoch]
        assert len(mine) == len(other) == len(batch_sizes(count, BATCH, 2))
        samples = [index for part in (*mine, *other) for index in part]
        assert len(samples) == count
        assert len(set(samples)) == first["kept"][epoch]


# ---------------------------------------------------------------------------------------------------------------
# What is refused


def test_another_loader_is_refused(tmp_path):
    cleaner = StepE(Recorded(*clouds()), **SHRINKS)
    with pytest.raises(InputError, match="the trainer trains on another loader"):
        trainer(tmp_path, cleaner).fit(Module(), DataLoader(Recorded(*clouds()), batch_size=BATCH, shuffle=True))


def test_other_epochs_are_refused(tmp_path):
    cleaner = StepE(Recorded(*clouds()), **SHRINKS)
    with pytest.raises(InputError, match="the trainer has max_epochs=7 and StepE epochs=6"):
        trainer(tmp_path, cleaner, max_epochs=7).fit(Module(), cleaner.loader(BATCH), validation())


def test_methods_with_a_loss_of_their_own_are_refused(tmp_path):
    cleaner = StepE(Recorded(*clouds()), method="truncation", epochs=EPOCHS, rho_max=0.3)
    with pytest.raises(InputError, match="'truncation' does more than choose samples"):
        trainer(tmp_path, cleaner).fit(Module(), cleaner.loader(BATCH), validation())


def test_shuffling_beside_the_plan_is_refused():
    with pytest.raises(InputError, match="leave the loader options shuffle out"):
        StepE(Recorded(*clouds()), **SHRINKS).loader(BATCH, shuffle=True)


def test_rates_by_steps_over_shorter_epochs_are_warned_of(tmp_path):
    cleaner = StepE(Recorded(*clouds()), length="kept", **SHRINKS)
    with pytest.warns(UserWarning, match='use StepE\\(length="full"\\)'):
        trainer(tmp_path, cleaner).fit(Module("step"), cleaner.loader(BATCH), validation())


class Named(Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.model(x)}

    def training_step(self, batch: Any, index: int) -> Tensor:
        x, y = batch
        return F.cross_entropy(self(x)["logits"], y)


def test_other_outputs_than_logits_need_a_forward(tmp_path):
    cleaner = StepE(Recorded(*clouds()), **SHRINKS)
    with pytest.raises(InputError, match="the model returned a dict, not a tensor of logits"):
        trainer(tmp_path, cleaner).fit(Named(), cleaner.loader(BATCH), validation())

    def forward(module: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        x, y = batch
        logits = module(x)["logits"]
        return F.cross_entropy(logits, y, reduction="none"), logits

    cleaner = StepE(Recorded(*clouds()), forward=forward, **SHRINKS)
    trainer(tmp_path, cleaner).fit(Named(), cleaner.loader(BATCH), validation())
    assert cleaner.history[-1]["kept"] == KEPT


def test_without_lightning_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    monkeypatch.delitem(sys.modules, "stepe.integrations.lightning")
    with pytest.raises(InputError, match=r'pip install "stepe\[lightning\]"'):
        import stepe.integrations.lightning  # noqa: F401


def test_the_callback_takes_the_options_of_a_loop_of_ones_own_by_name():
    own = inspect.signature(StepE).parameters
    theirs = inspect.signature(stepe.StepE).parameters
    assert {name: own[name].annotation for name in theirs if name != "data"} == {
        name: each.annotation for name, each in theirs.items() if name != "data"
    }
    assert {name for name in own if own[name].default != theirs.get(name, own[name]).default} == {"length"}
    with pytest.raises(InputError, match=r"no option 'roh_max'; did you mean rho_max\?"):
        StepE(Recorded(*clouds()), roh_max=0.3, epochs=2)
