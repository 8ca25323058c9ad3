"""Reading a run folder that somebody else may have made."""

from collections.abc import Callable
from pathlib import Path

import pytest

from made_run import make_run
from stepe.errors import RunError
from stepe.report.figures import final_losses
from stepe.report.html import write_report
from stepe.review.choices import likely_classes
from stepe.review.cleaned import write_cleaned
from stepe.review.export import export
from stepe.review.reviewed import write_reviewed
from stepe.run.decisions import Action
from stepe.run.folder import RunFolder

USES: dict[str, Callable[[RunFolder], object]] = {
    "config.json": lambda run: RunFolder(run.path),
    "summary.json": lambda run: run.finished,
    "history.jsonl": lambda run: run.history,
    "samples.parquet": lambda run: run.samples,
    "belief.npz": lambda run: run.belief,
    "exhibits.parquet": lambda run: run.previews,
    "trace.bin": final_losses,
    "compare": lambda run: run.others,
    "compare/one": lambda run: run.others,
    "decisions.sqlite": lambda run: run.decisions.record(Action("one")),
    "decisions.sqlite-journal": lambda run: run.decisions.record(Action("one")),
    "decisions.sqlite-wal": lambda run: run.decisions.current(),
    "decisions.sqlite-shm": lambda run: run.decisions.current(),
    "probabilities.npz": lambda run: likely_classes(run, [0]),
    "report.html": write_report,
    "reviewed.csv": write_reviewed,
    "cleaned.csv": write_cleaned,
    "label-studio.json": lambda run: export(run, "label-studio"),
    "fiftyone": lambda run: export(run, "fiftyone"),
    "fiftyone/data": lambda run: export(run, "fiftyone"),
}


@pytest.mark.parametrize("name", USES)
def test_no_link_is_followed_out_of_a_run_folder(name, tmp_path):
    run = make_run(tmp_path / "run", 6)
    victim = tmp_path / "victim"
    if Path(name).suffix:
        victim.write_bytes((run.path / name).read_bytes() if (run.path / name).exists() else b"mine")
    else:
        victim.mkdir()
        (victim / "summary.json").write_text("{}")
    (run.path / name).unlink(missing_ok=True)
    (run.path / name).parent.mkdir(exist_ok=True)
    (run.path / name).symlink_to(victim)
    before = victim.read_bytes() if victim.is_file() else sorted(victim.iterdir())
    with pytest.raises(RunError) as error:
        USES[name](run)
    assert f"{run.path / name} leads out of " in str(error.value)
    assert str(victim) in str(error.value)
    assert before == (victim.read_bytes() if victim.is_file() else sorted(victim.iterdir()))
