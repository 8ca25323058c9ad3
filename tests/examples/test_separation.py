import re
import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "separation.py"


def shares(line: str) -> list[float]:
    return [float(number) for number in re.findall(r"([\d.]+)%", line)]


@pytest.fixture(scope="module")
def printed() -> dict[str, list[float]]:
    """The example's lines, by what stands left of the numbers."""
    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr("builtins.print", lambda *parts: lines.extend(" ".join(map(str, parts)).splitlines()))
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    return {re.split(r"\s{2,}", line)[0]: shares(line) for line in lines}


def test_a_keep_reward_between_the_losses_recovers_the_clean_set_for_every_rho_max(printed):
    for rho_max in ("0.30", "0.35", "0.50"):
        assert printed[f"rho_max {rho_max}, keep reward between the losses"] == [100.0, 100.0]


def test_without_reward_the_clean_set_shrinks_by_what_rho_max_exceeds_the_rate(printed):
    assert printed["rho_max 0.30, no keep reward"] == [100.0, 100.0]
    # Of 700 clean samples, 50 and 200 go besides the noisy ones.
    assert printed["rho_max 0.35, no keep reward"] == [pytest.approx(100 * 650 / 700, abs=0.05), 100.0]
    assert printed["rho_max 0.50, no keep reward"] == [pytest.approx(100 * 500 / 700, abs=0.05), 100.0]


def test_the_losses_are_separated_under_the_ideal_parameters(printed):
    (line,) = (line for line in printed if line.startswith("ideal parameters"))
    highest_clean, lowest_noisy = (float(number) for number in re.findall(r"\d+\.\d+", line))
    assert highest_clean < lowest_noisy


def test_learned_gates_come_close_and_training_on_them_beats_plain_training(printed):
    plain, oracle = printed["plain, given labels"], printed["plain, clean labels (the oracle)"]
    assert plain[:2] == oracle[:2] == [100.0, 0.0]
    for rho_max in ("0.30", "0.35"):
        clean_kept, noisy_dropped, accuracy = printed[f"Step-E, given labels, rho_max {rho_max}"]
        assert clean_kept > 90
        assert noisy_dropped > 85
        assert plain[2] + 4 < accuracy <= oracle[2]
