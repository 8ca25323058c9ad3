"""The examples of the integrations run, in as many processes as they say, and find the wrong labels."""

import re
from pathlib import Path

import pytest

from processes import printed_by

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "processes", "needs"),
    [
        ("torch_loop.py", 0, "torch"),
        ("judge_loop.py", 0, "torch"),
        ("ddp_fit.py", 2, "torch"),
        ("ddp_loop.py", 2, "torch"),
        ("lightning_callback.py", 0, "lightning"),
        ("transformers_trainer.py", 0, "accelerate"),
        ("accelerate_loop.py", 2, "accelerate"),
    ],
)
def test_an_example_trains_and_finds_the_wrong_labels(tmp_path, name, processes, needs):
    pytest.importorskip(needs)
    printed = printed_by(ROOT / "examples" / name, tmp_path, processes)
    if processes:
        assert f"{processes} processes" in printed
    assert float(re.search(r"test accuracy ([\d.]+)%", printed)[1]) > 88
    assert float(re.search(r"and ([\d.]+)% of them are", printed)[1]) > (75 if name == "ddp_fit.py" else 90)
