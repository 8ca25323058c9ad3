import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def printed_by(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def test_a_regression_is_better_without_the_numbers_that_slipped(capsys):
    printed = printed_by("regression.py", capsys)
    plain, cleaned = (float(loss) for loss in re.findall(r"test data ([\d.]+)", printed))
    assert cleaned < plain
    assert int(re.search(r"(\d+)% of them are", printed)[1]) > 80


def test_several_labels_are_better_without_the_wrong_ones(capsys):
    printed = printed_by("multi_label.py", capsys)
    plain, cleaned = (float(right) for right in re.findall(r"([\d.]+)% of the tags", printed))
    assert cleaned > plain
    assert int(re.search(r"(\d+)% of them are", printed)[1]) > 80
