"""An audit: rounds of looks, each without the labels that seemed wrong."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from stepe.audit.panel import Shown, panel_for
from stepe.audit.rounds import MIN_KEEP, audit
from stepe.judges.base import View
from stepe.judges.blocks import Blocks
from stepe.judges.kernel import kernel
from stepe.judges.linear import linear
from stepe.judges.panel import Panel
from stepe.loop.metrics import auroc


def blobs(seed: int = 0, *, n: int = 600, classes: int = 3, rate: float = 0.2):
    random = np.random.default_rng(seed)
    truth = random.integers(0, classes, n)
    features = random.normal(size=(n, 8))
    features[np.arange(n), truth] += 3
    labels = np.where(random.random(n) < rate, (truth + random.integers(1, classes, n)) % classes, truth)
    return features, labels, truth


def panel(features) -> Panel:
    alone = Blocks.of_one_row(len(features))
    return Panel([linear(features, alone), kernel(features, alone)])


@dataclass
class Watched:
    """A judge that writes down what it was asked."""

    judge: Panel
    asked: list = field(default_factory=list)
    name = "watched"

    def look(self, weights, targets, settings=None) -> View:
        self.asked.append(weights.copy())
        return self.judge.look(weights, targets, settings)


@pytest.fixture(scope="module")
def made():
    return blobs()


@pytest.fixture(scope="module")
def found(made):
    features, labels, _ = made
    return audit(panel(features), labels, 3)


def test_it_finds_the_wrong_labels(made, found):
    _, labels, truth = made
    wrong = labels != truth
    suspicion = 1 - found.belief.p_right
    flagged = suspicion > 0.5
    assert auroc(suspicion, wrong) > 0.97
    assert 2 * (flagged & wrong).sum() / (flagged.sum() + wrong.sum()) > 0.85
    assert found.belief.rate.rate == pytest.approx(wrong.mean(), abs=0.05)


def test_each_round_leaves_out_what_seemed_wrong_after_the_one_before(made):
    features, labels, truth = made
    judge = Watched(panel(features))
    rounds = audit(judge, labels, 3, rounds=3).rounds
    assert judge.asked[0].all()
    assert all(
        (weights > 0).tolist() == round.kept.tolist() for weights, round in zip(judge.asked, rounds, strict=True)
    )
    for round in rounds[1:]:
        assert (labels != truth)[~round.kept].mean() > 0.8
        assert (~round.kept).mean() == pytest.approx(0.22, abs=0.06)


def test_no_more_is_left_out_than_allowed_nor_of_a_class_nor_what_was_checked(made):
    features, labels, truth = made
    few = audit(panel(features), labels, 3, rho_max=0.05).rounds
    assert max((~round.kept).mean() for round in few) <= 0.05
    checked = labels != truth
    trusting = audit(panel(features), labels, 3, trusted=checked)
    assert all(round.kept[checked].all() for round in trusting.rounds)
    assert (trusting.belief.p_right[checked] == 1).all()
    rare = np.where(np.arange(len(labels)) < 20, 2, labels % 2)  # one class of labels that mean nothing
    kept = audit(panel(features), rare, 3).rounds[-1].kept
    assert kept[rare == 2].mean() >= MIN_KEEP


def test_an_interrupted_audit_goes_on_to_the_same_bits(made, found):
    features, labels, _ = made
    seen = []
    again = audit(panel(features), labels, 3, before=found.rounds[:1], follow=seen.append)
    assert len(seen) == len(found.rounds) - 1
    assert np.array_equal(again.belief.p_right, found.belief.p_right)


def test_a_round_that_would_change_nothing_is_not_made(made):
    features, labels, truth = made
    assert len(audit(panel(features), truth, 3, rounds=5).rounds) < len(audit(panel(features), labels, 3).rounds)


def test_rows_of_no_weight_are_judged_and_teach_nothing(made):
    features, labels, truth = made
    learned = np.arange(len(labels)) % 4 > 0
    found = audit(panel(features), labels, 3, weights=learned.astype(float))
    others = np.where(learned, labels, (labels + 1) % 3)
    again = audit(panel(features), others, 3, weights=learned.astype(float))
    np.testing.assert_array_equal(found.rounds[-1].view.probability, again.rounds[-1].view.probability)
    assert found.belief.rate == again.belief.rate
    assert not any(round.kept[~learned].any() for round in found.rounds)
    assert auroc((1 - found.belief.p_right)[~learned], (labels != truth)[~learned]) > 0.95


def test_rows_of_the_history_say_what_a_round_did(found):
    rows = [round.row(number) for number, round in enumerate(found.rounds)]
    assert [row["epoch"] for row in rows] == [0, 1, 2]
    assert rows[0]["drop_fraction"] == 0
    assert rows[2]["kept"] == found.rounds[2].kept.sum()
    assert "linear share" in rows[0]["judge"]


def some(n: int, columns: int = 4) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, columns))


ODD = {
    "labels of chance": (some(200), np.random.default_rng(1).integers(0, 5, 200), 5),
    "one class": (some(200), np.zeros(200, dtype=int), 1),
    "a class of one row": (some(200), np.eye(1, 200, dtype=int)[0], 2),
    "labels that never repeat": (some(50), np.arange(50), 50),
    "constant columns": (np.ones((100, 3)), np.arange(100) % 2, 2),
    "no columns": (some(100, 0), np.arange(100) % 2, 2),
    "two rows": (some(2), np.array([0, 1]), 2),
}


@pytest.mark.parametrize("case", ODD)
def test_data_that_tell_nothing_are_audited_all_the_same(case):
    rows, labels, classes = ODD[case]
    p_right = audit(panel_for("table", Shown(rows, Blocks.of_one_row(len(rows)))), labels, classes).belief.p_right
    assert ((p_right >= 0) & (p_right <= 1)).all()
