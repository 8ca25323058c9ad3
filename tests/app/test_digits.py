"""What the shipped preset does on the real digits: a few seeds, with slack.

The exact figures over ten seeds are measured in ``benchmarks/``.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

import stepe


@pytest.fixture(scope="module")
def clean_digits(tmp_path_factory):
    """The summary of a run at full length, without the runs beside it and without its report."""
    folder = tmp_path_factory.mktemp("digits")

    @cache
    def run(noise: str, seed: int, preset: str | None = None) -> dict[str, Any]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("stepe.report.html.write_report", lambda run: Path())
            out = folder / f"{noise}-{seed}-{preset}"
            options = {"noise": noise, "seed": seed, "preset": preset, "compare": False, "device": "cpu"}
            return stepe.clean("digits", out=out, **options).summary

    return run


@pytest.mark.parametrize("seed", [0, 1])
def test_few_wrong_labels_are_found_without_many_false_alarms(clean_digits, seed):
    flagged = clean_digits("symmetric:0.02", seed).noise.flagged
    assert flagged.recall >= 0.85
    assert flagged.precision >= 0.85


def test_clean_digits_raise_few_flags(clean_digits):
    assert clean_digits("none", 0).flagged <= 20


@pytest.mark.parametrize("seed", [0, 1])
def test_much_noise_is_told_from_clean_labels(clean_digits, seed):
    summary = clean_digits("symmetric:0.4", seed)
    assert summary.noise.dropped.f1 >= 0.93
    assert summary.noise.auroc >= 0.99
    assert summary.test_accuracy >= 0.92


def test_flagging_is_stricter_than_dropping_with_a_margin(clean_digits):
    noise = clean_digits("symmetric:0.4", 0, preset="paper").noise
    assert noise.flagged.precision > noise.dropped.precision
    assert noise.flagged.recall >= 0.9
