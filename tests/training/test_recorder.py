"""The run folder: what is in it, what is refused, and what a resumed run repairs."""

import errno
import json
import os
import re
import resource
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import nn

import stepe
from interrupted import StopHereError, Stopper
from stepe import InputError, Run, RunError
from stepe.beliefs.issues import COLUMNS
from stepe.beliefs.names import Names
from stepe.files import TEMPORARY
from stepe.methods import Plain
from stepe.run.folder import latest_run
from stepe.run.lock import LOCK, check_free, locked
from stepe.run.previews import Preview
from stepe.run.record import Request
from stepe.training import checkpoint, recorder
from stepe.training.building import Result, Silent
from stepe.training.fit import begin
from stepe.training.recorder import Recorder, RunDetails

EPOCHS = 5


@pytest.fixture
def train(blobs, make_model):
    """Train blobs; ``stop`` interrupts after so many epochs."""

    def train(run: Path | Recorder, *, stop: int | None = None, **options) -> Result | None:
        model = options.pop("model", None) or make_model()
        labels = options.pop("labels", blobs.given)
        settings = {"epochs": EPOCHS, "batch_size": 16, "device": "cpu", "rho_max": 0.3} | options
        observers = () if stop is None else (Stopper(stop),)
        try:
            return stepe.fit(model, blobs.x, labels, run=run, observers=observers, **settings)
        except StopHereError:
            return None

    return train


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def epochs_in(run: Path) -> list[int]:
    return [json.loads(line)["epoch"] for line in (run / "history.jsonl").read_text().splitlines()]


# ---------------------------------------------------------------------------------------------------------------
# What is in it


def test_a_finished_run_holds_what_it_should(train, tmp_path):
    train(tmp_path / "run")
    assert sorted(entry.name for entry in (tmp_path / "run").iterdir()) == [
        "belief.npz",
        "checkpoint",
        "config.json",
        "history.jsonl",
        "issues.csv",
        "model.safetensors",
        "samples.parquet",
        "summary.json",
        "trace.bin",
    ]


def test_folders_on_the_way_are_made(train, tmp_path):
    train(tmp_path / "a" / "b" / "run")
    assert Run(tmp_path / "a" / "b" / "run").finished


def test_the_config_records_what_ran_and_what_it_ran_on(train, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/bin/train.py", "--fast"])
    monkeypatch.setenv("STEPE_COMMIT", "abc123")
    train(Recorder(tmp_path / "run", RunDetails(request=Request(data="mine"), class_names=["a", "b", "c"])), seed=11)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["format"] == 2
    assert config["request"]["data"] == "mine"
    assert config["class_names"] == ["a", "b", "c"]
    assert config["fit"]["method"] == "step-e"
    assert config["fit"]["options"]["rho_max"] == 0.3
    assert config["fit"]["epochs"] == EPOCHS
    assert config["fit"]["seed"] == 11
    assert config["fit"]["optimizer"]["name"] == "SGD"
    environment = config["environment"]
    assert environment["seed"] == 11
    assert environment["device"] == "cpu"
    assert environment["threads"] == torch.get_num_threads()
    assert environment["command"] == "train.py --fast"
    assert environment["commit"] == "abc123"
    assert all(environment[name] for name in ("stepe", "torch", "numpy", "python"))


def test_the_history_on_disk_is_the_history(train, tmp_path, blobs):
    result = train(tmp_path / "run", truth=blobs.truth, test=(blobs.x, blobs.clean))
    assert Run(tmp_path / "run").history == result.history
    assert epochs_in(tmp_path / "run") == list(range(EPOCHS))
    assert Run(tmp_path / "run").summary == result.summary


def test_the_belief_on_disk_is_the_belief(train, tmp_path):
    belief, found = train(tmp_path / "run").belief, Run(tmp_path / "run").belief
    for name, value in vars(belief).items():
        np.testing.assert_equal(getattr(found, name), value, name)


def test_the_weights_on_disk_are_the_models(train, tmp_path, make_model, bits):
    result = train(tmp_path / "run")
    other = make_model(seed=9)
    safetensors.torch.load_model(other, str(tmp_path / "run" / "model.safetensors"))
    assert bits(other) == bits(result.model)


def test_the_tables_agree_with_the_ledger_and_each_other(train, tmp_path, blobs):
    result = train(tmp_path / "run")
    run, ledger = Run(tmp_path / "run"), result.ledger
    samples = run.samples
    assert tuple(samples.columns) == COLUMNS
    assert len(samples) == len(blobs.x)
    assert samples["dropped"].tolist() == ledger["dropped"].tolist()
    assert samples["given_label"].tolist() == [str(label) for label in blobs.given.tolist()]
    assert samples["suggested_label"].tolist() == [str(label) for label in ledger["prediction"].tolist()]
    assert (samples["flagged"] <= samples["dropped"]).all()
    assert sorted(samples["rank"]) == list(range(1, len(samples) + 1))
    issues = pd.read_csv(tmp_path / "run" / "issues.csv", dtype={"id": str, "given_label": str, "suggested_label": str})
    assert len(issues) == run.summary.flagged > 0
    assert issues["rank"].tolist() == list(range(1, len(issues) + 1))
    assert issues["suspicion"].is_monotonic_decreasing
    assert issues["id"].tolist() == run.issues["id"].tolist()
    assert set(issues["status"]) == {"open"}


def test_held_out_samples_stand_below_the_training_samples(train, tmp_path, blobs):
    details = RunDetails(
        names=Names([f"row {i}" for i in range(97)], list(range(97))),
        held_out_names=Names(["t1", "t2", "t3"], [97, 98, 99], "test"),
    )
    train(Recorder(tmp_path / "run", details), test=(blobs.x[:3], blobs.clean[:3]))
    samples = Run(tmp_path / "run").samples
    held_out = samples[samples["split"] == "test"]
    assert held_out["id"].tolist() == ["t1", "t2", "t3"]
    assert held_out["row"].tolist() == [97, 98, 99]
    assert sorted(held_out["rank"]) == [98, 99, 100]
    assert not held_out["flagged"].any()
    assert held_out["suspicion"].between(0, 1).all()
    assert samples["id"].tolist()[:2] == ["row 0", "row 1"]


def test_suspects_and_examples_are_stored_as_people_see_them(train, tmp_path):
    def previews(index: list[int]) -> list[Preview]:
        return [Preview(1000 + i, text=f"sample {i}") for i in index]

    names = Names([str(i) for i in range(97)], [1000 + i for i in range(97)], groups=["g"] * 97)
    train(Recorder(tmp_path / "run", RunDetails(names=names, previews=previews)))
    run = Run(tmp_path / "run")
    assert all(preview.text == f"sample {row - 1000}" for row, preview in run.previews.items())
    assert set(run.issues["row"]) <= set(run.previews)
    by_row = run.samples.set_index("row")
    for name in run.class_names:
        rows = run.examples(name)
        assert rows
        assert set(rows) <= set(run.previews)
        assert (by_row.loc[rows, "given_label"] == name).all()
        assert not by_row.loc[rows, "dropped"].any()
        others = by_row[(by_row["given_label"] == name) & ~by_row["dropped"]].drop(index=rows)
        assert by_row.loc[rows, "suspicion"].max() <= others["suspicion"].min()
    assert set(run.samples["group"]) == {"g"}
    assert "group" not in (run.path / "issues.csv").read_text().partition("\n")[0]


def test_an_unknown_class_has_no_examples(train, tmp_path):
    train(Recorder(tmp_path / "run"))
    assert Run(tmp_path / "run").examples("nobody") == []


def test_the_summary_comes_last(train, tmp_path, monkeypatch):
    seen = []
    write_text = recorder.write_text

    def recording(path: Path, text: str) -> None:
        if path.name == "summary.json":
            seen.extend(entry.name for entry in path.parent.iterdir())
        write_text(path, text)

    monkeypatch.setattr(recorder, "write_text", recording)
    train(tmp_path / "run")
    assert {"samples.parquet", "issues.csv", "model.safetensors", "trace.bin"} <= set(seen)
    assert "summary.json" not in seen


def test_a_samples_trace_has_an_entry_an_epoch_and_the_last_word(train, tmp_path, blobs):
    result = train(tmp_path / "run", warmup=2)
    run = Run(tmp_path / "run")
    dropped = int(torch.nonzero(result.ledger["dropped"])[0])
    trace = run.trace(dropped)
    assert [entry["epoch"] for entry in trace] == list(range(EPOCHS + 1))
    assert [entry["loss"] is None for entry in trace] == [True, True, False, False, False, False]
    assert trace[-1]["loss"] == pytest.approx(float(result.ledger["loss"][dropped]), rel=1e-3)
    assert trace[-1]["prediction"] == str(int(result.ledger["prediction"][dropped]))
    assert trace[-1]["dropped"]
    assert sum(entry["dropped"] for entry in trace[:-1]) == int(result.ledger["drop_count"][dropped])


def test_a_model_with_more_outputs_than_classes_has_a_trace_too(train, tmp_path):
    torch.manual_seed(0)
    model = nn.Linear(6, 5)
    with torch.no_grad():
        model.bias[4] = 1000.0
    train(tmp_path / "run", model=model, learning_rate=1e-9)
    assert {entry["prediction"] for entry in Run(tmp_path / "run").trace(0)} == {None, "4"}


# ---------------------------------------------------------------------------------------------------------------
# What is refused


def test_a_folder_that_is_not_empty_is_refused_and_left_alone(train, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match=r"is not empty; choose another folder, or resume"):
        train(tmp_path)
    assert contents(tmp_path) == {"mine.txt": b"mine"}


def test_a_finished_run_is_not_overwritten(train, tmp_path):
    train(tmp_path / "run")
    before = contents(tmp_path / "run")
    with pytest.raises(InputError, match="is not empty"):
        train(tmp_path / "run")
    assert contents(tmp_path / "run") == before


def test_an_empty_folder_and_one_with_leftovers_of_a_kill_are_as_good_as_new(train, tmp_path):
    train(tmp_path)
    assert Run(tmp_path).finished
    for resume in (False, True):
        folder = tmp_path / f"killed-{resume}"
        folder.mkdir()
        (folder / f"{TEMPORARY}abc.json").write_text("{")
        train(folder, resume=resume)
        assert Run(folder).finished
        assert not list(folder.glob(f"{TEMPORARY}*"))


def test_a_file_is_no_folder(train, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"file is a file; choose another folder"):
        train(tmp_path / "file")
    with pytest.raises(RunError, match=r"cannot write .*file/run"):
        train(tmp_path / "file" / "run")
    assert contents(tmp_path) == {"file": b"mine"}


@pytest.mark.parametrize("path", ["/proc/no-such/run", "/dev/null/run", f"{'x' * 300}/run"])
def test_a_place_that_cannot_be_written_is_an_error_that_names_it(train, tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        RunError, match=r"cannot write .*; free some space, or choose a folder you may write to"
    ) as told:
        train(Path(path))
    assert path in str(told.value)
    assert contents(tmp_path) == {}


def test_a_checkpoint_every_no_epochs_is_refused(train, tmp_path):
    with pytest.raises(InputError, match="checkpoint_every is 0; it must be at least 1"):
        train(tmp_path / "run", checkpoint_every=0)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "mistake",
    [{"epochs": 0}, {"warmup": EPOCHS}, {"rho_max": 1.0}, {"method": "magic"}, {"device": "tpu"}, {"batch_size": 0}],
)
def test_bad_input_is_refused_before_anything_is_written(train, tmp_path, mistake):
    with pytest.raises(InputError):
        train(tmp_path / "run", **mistake)
    assert not (tmp_path / "run").exists()


def test_a_disk_that_fills_up_is_an_error_that_names_the_file(train, tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(RunError, match=r"cannot write .*config.json: No space left on device; free some space"):
        train(tmp_path / "run")
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("limit", [100, 1500, 2500, 4000, 6000, 9000])
def test_wherever_the_system_refuses_to_write_it_is_one_error_and_no_half_file(train, tmp_path, limit):
    run = tmp_path / "run"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(RunError, match=r"cannot write .*run.*: .*File too large.*; free some space"):
            train(run)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not [name for name in contents(run) if TEMPORARY in name]
    assert train(run, resume=True).training.epoch == EPOCHS
    assert epochs_in(run) == list(range(EPOCHS))


# ---------------------------------------------------------------------------------------------------------------
# Resuming


@pytest.mark.parametrize("stop", [1, 3, EPOCHS])
def test_a_resumed_run_has_one_line_an_epoch(train, tmp_path, stop):
    train(tmp_path / "run", stop=stop)
    assert epochs_in(tmp_path / "run") == list(range(stop))
    assert not Run(tmp_path / "run").finished
    train(tmp_path / "run", resume=True)
    assert epochs_in(tmp_path / "run") == list(range(EPOCHS))
    assert len(Run(tmp_path / "run").trace(0)) == EPOCHS + 1


def test_resuming_what_is_not_there_yet_starts_it(train, tmp_path):
    train(tmp_path / "run", resume=True)
    assert Run(tmp_path / "run").finished


def test_resuming_a_finished_run_changes_nothing(train, tmp_path):
    train(tmp_path / "run")
    before = contents(tmp_path / "run")
    train(tmp_path / "run", resume=True)
    assert contents(tmp_path / "run") == before


def test_resuming_a_folder_without_a_run_is_refused(train, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match=r"holds no run \(no config.json\); nothing to resume"):
        train(tmp_path, resume=True)
    assert contents(tmp_path) == {"mine.txt": b"mine"}


def test_lines_later_than_the_checkpoint_and_torn_ones_are_ignored_and_repaired(train, tmp_path):
    run = tmp_path / "run"
    train(run, stop=3)
    with (run / "history.jsonl").open("a") as file:
        file.write('{"epoch": 3, "kept": 1}\n{"epoch": 4, "ke')
    assert [row["epoch"] for row in Run(run).history] == [0, 1, 2, 3]
    with (run / "trace.bin").open("ab") as file:
        file.write(b"torn")
    train(run, resume=True)
    assert epochs_in(run) == list(range(EPOCHS))
    assert Run(run).history[3]["kept"] > 1
    train(tmp_path / "whole")
    assert (run / "trace.bin").read_bytes() == (tmp_path / "whole" / "trace.bin").read_bytes()


def half(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs, targets, reduction="none") / 2


CHANGES = {
    "epochs": ({"epochs": 6}, "epochs was 5 and is now 6"),
    "seed": ({"seed": 4}, "seed was 0 and is now 4"),
    "batch size": ({"batch_size": 8}, "batch_size was 16 and is now 8"),
    "method": ({"method": "one-shot"}, "method was 'step-e' and is now 'one-shot'"),
    "rho_max": ({"rho_max": 0.2}, "'rho_max': 0.2"),
    "schedule": ({"schedule": np.sqrt}, "sqrt"),
    "learning rate": ({"learning_rate": 0.01}, "'lr': 0.01"),
    "rate shape": ({"rate_shape": half}, "rate was '<function cosine>' and is now '<function half>'"),
    "scheduler": ({"scheduler": lambda o: torch.optim.lr_scheduler.StepLR(o, 2)}, "is now 'StepLR'"),
    "optimizer": ({"optimizer": torch.optim.Adam}, "'name': 'Adam'"),
    "criterion": ({"criterion": half}, "is now '<function half>'"),
    "groups": ({"groups": [0] * 97}, "groups was None"),
    "precision": ({"amp": "bf16"}, "amp was None and is now 'bf16'"),
    "model": ({"model": nn.Linear(6, 3)}, "is now 'Linear"),
}


@pytest.mark.parametrize(("change", "told"), CHANGES.values(), ids=CHANGES.keys())
def test_resuming_with_another_configuration_names_the_difference(train, tmp_path, change, told):
    run = tmp_path / "run"
    train(run, stop=2)
    before = contents(run)
    with pytest.raises(RunError, match="was started with another configuration") as error:
        train(run, resume=True, **change)
    assert told in str(error.value)
    assert contents(run) == before


def test_resuming_with_other_labels_is_refused(train, tmp_path, blobs):
    train(tmp_path / "run", stop=2)
    others = blobs.given.clone()
    others[0] = (others[0] + 1) % 3
    with pytest.raises(RunError, match="labels was"):
        train(tmp_path / "run", resume=True, labels=others)


def test_other_settings_of_an_optimizer_are_noticed(train, tmp_path):
    train(tmp_path / "run", stop=2, optimizer=partial(torch.optim.Adam, betas=(0.9, 0.99)))
    with pytest.raises(RunError, match=r"\(0.9, 0.99\).*\(0.8, 0.99\)"):
        train(tmp_path / "run", resume=True, optimizer=partial(torch.optim.Adam, betas=(0.8, 0.99)))


def test_another_number_of_threads_is_a_warning(train, tmp_path):
    train(tmp_path / "run", stop=2)
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        with pytest.warns(
            UserWarning, match=f"{before} threads and goes on with {before + 1}: results differ by round"
        ):
            train(tmp_path / "run", resume=True)
    finally:
        torch.set_num_threads(before)


# ---------------------------------------------------------------------------------------------------------------
# Opening a run


def test_a_run_opens_by_path(train, tmp_path):
    train(tmp_path / "run")
    run = stepe.Run(str(tmp_path / "run"))
    assert run.finished
    assert run.method == "step-e"
    assert run.class_names == ["0", "1", "2"]
    assert repr(run) == f"Run({str(tmp_path / 'run')!r})"
    assert run.previews == {}
    assert run.others == []


def test_an_unfinished_run_tells_how_to_continue(train, tmp_path):
    train(tmp_path / "my run", stop=2)
    run = Run(tmp_path / "my run")
    assert len(run.history) == 2
    for ask in (lambda: run.summary, lambda: run.samples, lambda: run.issues):
        with pytest.raises(RunError, match=r"not finished; continue it with `stepe clean --resume '.*/my run'`"):
            ask()


@pytest.mark.parametrize("name", ["nothing", "file", "folder"])
def test_what_is_no_run_folder_says_so(tmp_path, name):
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder").mkdir()
    with pytest.raises(
        RunError, match=rf"{name} is not a run folder \(no config.json\); runs are made by `stepe clean`"
    ):
        Run(tmp_path / name)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": 99}', "\udcff"])
def test_a_config_that_cannot_be_used_says_so(train, tmp_path, content):
    train(tmp_path / "run", stop=1)
    (tmp_path / "run" / "config.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(RunError, match=r"config.json (cannot be read|is not of a run)"):
        Run(tmp_path / "run")
    with pytest.raises(RunError, match=r"config.json (cannot be read|is not of a run)"):
        train(tmp_path / "run", resume=True)


def test_the_runs_it_was_compared_with_are_the_finished_ones(train, tmp_path):
    train(tmp_path / "run")
    stepe.fit(
        nn.Linear(2, 2),
        torch.randn(8, 2),
        [0, 1] * 4,
        method="plain",
        epochs=1,
        device="cpu",
        run=tmp_path / "run" / "compare" / "plain",
    )
    (tmp_path / "run" / "compare" / "unfinished").mkdir()
    assert [other.method for other in Run(tmp_path / "run").others] == ["plain"]


@pytest.mark.parametrize(
    "name",
    ["config.json", "trace.bin", "history.jsonl", "model.safetensors", "checkpoint", "checkpoint/epoch-00002"]
    + [f"checkpoint/epoch-00002/{file}" for file in sorted((*checkpoint.FILES, checkpoint.MANIFEST))],
)
def test_no_link_is_followed_out_of_a_run_that_is_resumed(train, tmp_path, name):
    train(tmp_path / "run", stop=2)
    link, victim = tmp_path / "run" / name, tmp_path / "victim"
    if link.exists():
        link.rename(victim)
    else:
        victim.write_text("mine")
    link.symlink_to(victim)
    before = contents(victim) if victim.is_dir() else victim.read_bytes()
    with pytest.raises(RunError, match=f"{re.escape(str(link))} leads out of"):
        train(tmp_path / "run", resume=True)
    assert before == (contents(victim) if victim.is_dir() else victim.read_bytes())


def test_a_folder_in_use_is_refused_before_any_work(train, tmp_path, monkeypatch):
    monkeypatch.setattr("stepe.training.fit._run", lambda *parts: pytest.fail("training began"))
    with locked(tmp_path / "run"), pytest.raises(RunError, match=r"run is in use by this very process since"):
        train(tmp_path / "run")


def test_the_folder_is_locked_until_training_ends_however_it_ends(train, tmp_path):
    class Watching(Silent):
        def epoch_ended(self, training, row):
            with pytest.raises(RunError, match="in use"):
                check_free(tmp_path / "run")

    stepe.fit(
        nn.Linear(2, 2),
        torch.randn(8, 2),
        [0, 1] * 4,
        epochs=1,
        device="cpu",
        run=tmp_path / "run",
        method="plain",
        observers=(Watching(),),
    )
    assert not (tmp_path / "run" / LOCK).exists()
    train(tmp_path / "other", stop=2)
    assert not (tmp_path / "other" / LOCK).exists()
    train(tmp_path / "other", resume=True)


def test_two_runs_that_were_begun_together_do_not_mix(blobs, make_model, tmp_path):
    options = {"epochs": 1, "method": Plain(), "device": "cpu", "run": tmp_path / "run"}
    first, second = (begin(make_model(), blobs.x, blobs.given, **options) for _ in range(2))
    first.finish()
    with pytest.raises(InputError, match="run is not empty"):
        second.finish()


def test_the_latest_run_is_the_one_started_last(tmp_path):
    with pytest.raises(RunError, match=r"there is no run under .* yet; make one with `stepe clean digits`"):
        latest_run(tmp_path)
    for age, name in enumerate(("old", "new", "oldest")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        os.utime(tmp_path / name / "config.json", (0, 1000 - age if name == "oldest" else 1000 + age))
    (tmp_path / "no-run").mkdir()
    assert latest_run(tmp_path) == tmp_path / "new"
