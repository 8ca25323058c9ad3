import runpy
import sys
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

EXAMPLE = Path(__file__).parents[2] / "examples" / "tracking.py"


def test_the_history_is_printed_and_in_tensorboard(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), str(tmp_path / "logs")])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "10 epochs of step-e"
    assert printed[-1].endswith("labels look wrong")
    kept = EventAccumulator(str(tmp_path / "logs")).Reload().Scalars("kept")
    assert [f"{event.value:.0f} kept" for event in kept] == [line.split(", ")[1] for line in printed[1:-1]]
