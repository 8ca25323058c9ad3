"""Step-E under a real transformers trainer, while the kept set shrinks to 40%."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from shrinking import BATCH, EPOCHS, KEPT, N, assert_trained, untimed
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

from processes import printed_by
from stepe import InputError
from stepe.loop.plan import batch_sizes

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
from stepe.integrations.transformers import StepETrainer  # noqa: E402

OPTIONS: dict[str, Any] = {"rho_max": 0.6, "stepe": {"warmup": 1, "ramp_end": 4}}
WORDS, LENGTH = 40, 8
ROOT = Path(__file__).parents[2]


class Texts(Dataset[dict[str, Any]]):
    """Token ids whose class shows; a third of the labels is wrong. Counts what is fetched."""

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(0)
        clean = torch.arange(N) % 3
        self.ids = torch.randint(3, WORDS // 2, (N, LENGTH), generator=draw)
        self.ids[:, :3] = WORDS // 2 + clean[:, None] + 3 * torch.randint(2, (N, 3), generator=draw)
        self.labels = torch.where(torch.rand(N, generator=draw) < 0.3, (clean + 1) % 3, clean)
        self.fetched = torch.zeros(N, dtype=torch.int64)

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.fetched[index] += 1
        return {"input_ids": self.ids[index], "labels": int(self.labels[index])}

    def take(self) -> Tensor:
        counts = self.fetched.clone()
        self.fetched.zero_()
        return counts


def tiny() -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=WORDS + 10,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=LENGTH,
        num_labels=3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    torch.manual_seed(0)
    return transformers.BertForSequenceClassification(config)


class Watch(transformers.TrainerCallback):
    """What was fetched for training in each epoch, against what was kept; the rates; the gradients left over."""

    def __init__(self, data: Texts):
        self.data = data
        self.trainer: Any = None
        self.counts: list[Tensor] = []
        self.kept: list[Tensor] = []
        self.rates: list[float] = []
        self.evaluated: list[float] = []
        self.probes = 0

    def on_epoch_begin(self, *args, **_) -> None:
        self.kept.append(self.trainer.cleaner.plan.kept.clone())
        self.data.take()  # what the probe read

    def on_epoch_end(self, *args, **_) -> None:
        self.counts.append(self.data.take())

    def on_step_end(self, args, state, control, **_) -> None:
        self.rates.append(self.trainer._get_learning_rate())

    def on_evaluate(self, args, state, control, **_) -> None:
        self.evaluated.append(state.epoch)


def trainer(folder: Path, **options: Any) -> tuple[Any, Watch]:
    data = Texts()
    watch = Watch(data)
    settings = {
        "output_dir": str(folder),
        "num_train_epochs": EPOCHS,
        "per_device_train_batch_size": BATCH,
        "learning_rate": 1e-2,
        "save_strategy": "no",
        "eval_strategy": "epoch",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "lr_scheduler_type": "linear",
        "dataloader_pin_memory": False,
    } | options.pop("args", {})
    made = StepETrainer(
        model=tiny(),
        args=transformers.TrainingArguments(**settings),
        train_dataset=options.pop("data", data),
        eval_dataset=Texts(),
        **OPTIONS | options,
    )
    watch.trainer = made
    made.add_callback(watch)
    probe = made._judge

    def counted(model, batch):
        watch.probes += len(batch["labels"])
        return probe(model, batch)

    if "forward" not in options:
        made._probing = type(made._probing)(counted, made._probing.batch_size)
    return made, watch


@pytest.mark.parametrize("length", ["kept", "full"])
@pytest.mark.parametrize("accumulation", [1, 4])
def test_everything_is_counted_right_while_the_kept_set_shrinks(tmp_path, length, accumulation):
    made, watch = trainer(tmp_path, length=length, args={"gradient_accumulation_steps": accumulation})
    made.train()
    for counts, kept in zip(watch.counts, watch.kept, strict=True):
        assert_trained(counts, kept, length)
    assert [row["kept"] for row in made.cleaner.history][::5] == [N, KEPT]
    assert watch.evaluated == pytest.approx(range(1, EPOCHS + 1))
    assert watch.probes == EPOCHS * N
    batches = [len(batch_sizes(N if length == "full" else int(kept.sum()), BATCH)) for kept in watch.kept]
    assert made.state.global_step == len(watch.rates) == sum(-(-count // accumulation) for count in batches)
    assert made.lr_scheduler.get_last_lr()[0] == pytest.approx(0, abs=1e-12)
    assert all(before >= after for before, after in zip(watch.rates, watch.rates[1:], strict=False))
    assert all(parameter.grad is None for parameter in made.model.parameters())
    issues = made.issues
    assert len(issues)
    assert set(issues["suggested_label"]) <= {"0", "1", "2"}


def test_a_hugging_face_data_set_is_taken_with_its_names_and_collator(tmp_path):
    datasets = pytest.importorskip("datasets")
    texts = Texts()
    data = datasets.Dataset.from_dict(
        {"input_ids": texts.ids.tolist(), "label": texts.labels.tolist(), "text": ["unused"] * N}
    )
    made, _ = trainer(tmp_path, data=data, args={"dataloader_num_workers": 1})
    made.train()
    assert made.cleaner.history[-1]["kept"] == KEPT
    assert torch.equal(made.cleaner.task.labels, texts.labels)


class Stop(Exception):  # noqa: N818
    """Ends a run in its middle."""


class StopAt(transformers.TrainerCallback):
    def __init__(self, step: int):
        self.step = step

    def on_save(self, args, state, control, **_) -> None:
        if state.global_step == self.step:
            raise Stop


@pytest.mark.parametrize("length", ["kept", "full"])
@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("after", ["inside", "at the end"])
def test_a_run_goes_on_from_a_checkpoint(tmp_path, length, accumulation, after):
    saving = {"save_strategy": "steps", "save_steps": 1, "gradient_accumulation_steps": accumulation}
    reference, through = trainer(tmp_path / "reference", length=length, args=saving)
    reference.train()
    updates = [-(-len(batch_sizes(int(c.sum()), BATCH)) // accumulation) for c in through.counts]
    step = sum(updates[:3]) + (0 if after == "at the end" else 1)

    made, before = trainer(tmp_path / "run", length=length, args=saving)
    made.add_callback(StopAt(step))
    with pytest.raises(Stop):
        made.train()
    counted = before.data.take()

    again, rest = trainer(tmp_path / "run", length=length, args=saving)
    again.train(resume_from_checkpoint=True)
    seen = [*before.counts[:3]]
    if after == "inside":
        # The trainer reads a batch ahead of accumulation at most: what was not trained comes again.
        assert torch.equal(counted + rest.counts[0], through.counts[3])
        seen += [counted + rest.counts[0], *rest.counts[1:]]
    else:
        seen = [*before.counts[:2], counted, *rest.counts]
    assert torch.equal(torch.stack(seen), torch.stack(through.counts))
    assert untimed(again.cleaner.history) == untimed(reference.cleaner.history)
    assert before.probes + rest.probes == EPOCHS * N  # none twice
    assert again.state.global_step == reference.state.global_step
    assert again.lr_scheduler.get_last_lr()[0] == pytest.approx(0, abs=1e-12)
    for here, there in zip(again.model.parameters(), reference.model.parameters(), strict=True):
        torch.testing.assert_close(here, there)


def test_a_run_saved_by_epochs_goes_on_at_the_next(tmp_path):
    made, _ = trainer(tmp_path, length="kept", args={"save_strategy": "epoch"})
    made.train()
    folders = sorted(tmp_path.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    again, rest = trainer(tmp_path, length="kept", args={"save_strategy": "epoch"})
    again.train(resume_from_checkpoint=str(folders[2]))
    assert len(rest.counts) == 3
    assert untimed(again.cleaner.history) == untimed(made.cleaner.history)


def test_a_number_of_steps_is_turned_into_epochs(tmp_path):
    made, _ = trainer(tmp_path, stepe={}, args={"max_steps": 11, "num_train_epochs": 50})
    made.train()
    assert made.cleaner.task.epochs == 2
    assert made.state.global_step == 11


DISTRIBUTED = """
import json, sys
from pathlib import Path
sys.path[:0] = {paths!r}
import torch
from processes import leave_group
from test_transformers import trainer

torch.set_num_threads(1)
folder = Path({folder!r})
made, watch = trainer(folder / "out", length={length!r}, args={{
    "per_device_train_batch_size": 8, "save_strategy": "epoch", "ddp_backend": "gloo"}})
made.train()
(folder / f"rank{{made.args.process_index}}.json").write_text(json.dumps({{
    "world": made.args.world_size, "counts": [c.tolist() for c in watch.counts],
    "kept": [k.tolist() for k in watch.kept], "rate": made.lr_scheduler.get_last_lr()[0],
    "steps": made.state.global_step, "evaluated": watch.evaluated}}))
leave_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("length", ["kept", "full"])
def test_two_processes_share_the_kept_samples(tmp_path, length):
    script = tmp_path / "run.py"
    paths = [str(ROOT / "src"), str(Path(__file__).parent), str(ROOT / "tests")]
    script.write_text(DISTRIBUTED.format(paths=paths, folder=str(tmp_path), length=length))
    printed_by(script, tmp_path, processes=2)
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2))
    assert first["world"] == second["world"] == 2
    assert first["kept"] == second["kept"]
    assert first["steps"] == second["steps"]
    assert first["rate"] == pytest.approx(0, abs=1e-12)
    assert first["evaluated"] == pytest.approx(range(1, EPOCHS + 1))
    for epoch in range(EPOCHS):
        counts = torch.tensor([first["counts"][epoch], second["counts"][epoch]]).sum(0)
        assert_trained(counts, torch.tensor(first["kept"][epoch]), length)
    assert sum(first["kept"][-1]) == KEPT


# ---------------------------------------------------------------------------------------------------------------
# What is refused


class Unlabelled(Texts):
    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": self.ids[index], "kind": 1}


class Streamed(IterableDataset[dict[str, Any]]):
    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"data": Unlabelled()}, "no column 'label' or 'labels'"),
        ({"data": Streamed(), "args": {"max_steps": 3}}, "cannot be read by index"),
        ({"args": {"train_sampling_strategy": "sequential"}}, "would choose samples beside the plan"),
        ({"rho_max": 0.3, "stepe": {"softness": 0.5}}, "does more than choose samples"),
        ({"forward": lambda model, batch: model(**batch).loss}, 'reduction="none"'),
    ],
    ids=["no labels", "a stream", "another order", "weights", "a reduced loss"],
)
def test_mistakes_name_the_fix(tmp_path, options, told):
    made, _ = trainer(tmp_path, **options)
    with pytest.raises(InputError) as error:
        made.train()
    assert told in str(error.value)


def test_issues_before_training_are_an_error(tmp_path):
    with pytest.raises(InputError, match=r"call trainer.train\(\) first"):
        _ = trainer(tmp_path)[0].issues


def test_a_checkpoint_of_another_trainer_is_refused(tmp_path):
    made, _ = trainer(tmp_path, args={"save_strategy": "epoch"})
    made.train()
    for path in tmp_path.glob("checkpoint-*/stepe.pt"):
        path.unlink()
    again, _ = trainer(tmp_path)
    with pytest.raises(InputError, match="written by another trainer"):
        again.train(resume_from_checkpoint=True)


def test_without_transformers_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "stepe.integrations.transformers")
    with pytest.raises(InputError, match=r'pip install "stepe\[transformers\]"'):
        import stepe.integrations.transformers  # noqa: F401
