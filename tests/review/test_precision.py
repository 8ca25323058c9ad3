import pytest

from stepe.review.precision import Precision, seconds_each, wilson


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"), [(41, 50, 0.7150, 0.8923), (0, 10, 0.0, 0.2130), (10, 10, 0.7870, 1.0)]
)
def test_the_range_is_wilsons(hits, n, low, high):
    """Against statsmodels.stats.proportion.proportion_confint(hits, n, alpha=0.1, method="wilson")."""
    assert wilson(hits, n) == pytest.approx((low, high), abs=5e-4)


def test_the_range_covers_the_truth_as_often_as_it_says():
    """Exactly, over all outcomes of 40 draws: on average over shares, nine times in ten."""
    from math import comb

    def coverage(share: float, n: int = 40) -> float:
        chance = (comb(n, hits) * share**hits * (1 - share) ** (n - hits) for hits in range(n + 1))
        return sum(p for hits, p in enumerate(chance) if wilson(hits, n)[0] <= share <= wilson(hits, n)[1])

    shares = [i / 100 for i in range(5, 100, 5)]
    assert sum(map(coverage, shares)) / len(shares) == pytest.approx(0.9, abs=0.02)


def test_whoever_is_not_sure_says_nothing():
    found = Precision.of([True, None, False, None])
    assert (found.wrong, found.judged) == (1, 2)
    assert Precision.of([None]) == Precision(0, 0, 0.0, 1.0)


def time(seconds: float) -> str:
    return f"2026-01-01T{int(seconds // 3600):02}:{int(seconds // 60 % 60):02}:{seconds % 60:06.3f}+00:00"


def test_a_pause_is_no_part_of_the_pace():
    assert seconds_each([time(0), time(2), time(4), time(1000), time(1002)]) == pytest.approx(2)


def test_the_pace_is_that_of_the_last_decisions():
    slow = [time(10 * i) for i in range(50)]
    fast = [time(500 + i) for i in range(41)]
    assert seconds_each(slow + fast) == pytest.approx(1)


@pytest.mark.parametrize("times", [[], [time(0)], [time(0), time(1)], [time(5)] * 5])
def test_too_few_decisions_have_no_pace(times):
    assert seconds_each(times) is None
