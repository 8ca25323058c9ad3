"""What holds for every judge."""

import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.naive_bayes import GaussianNB
from threadpoolctl import threadpool_limits

from stepe.judges.base import Floats, Judge, one_hot
from stepe.judges.blocks import Blocks
from stepe.judges.folds import InFolds
from stepe.judges.forest import Forest
from stepe.judges.kernel import kernel, rank_kernel
from stepe.judges.linear import linear
from stepe.judges.neighbours import Neighbours, nearest
from stepe.judges.panel import Panel

Maker = Callable[[Floats, Blocks], Judge]


def forest(columns: Floats, blocks: Blocks) -> Forest:
    return Forest(columns.astype(np.float32), blocks, trees=40)


def neighbours(columns: Floats, blocks: Blocks) -> Neighbours:
    return Neighbours(nearest(columns - columns.mean(0), 20), blocks)


def in_folds(columns: Floats, blocks: Blocks) -> InFolds:
    return InFolds("bayes", GaussianNB(), columns, blocks, repeats=2)


def boosting(columns: Floats, blocks: Blocks) -> InFolds:
    small = HistGradientBoostingClassifier(max_iter=8, min_samples_leaf=5)
    return InFolds("boosting", small, columns, blocks)


def panel(columns: Floats, blocks: Blocks) -> Panel:
    return Panel([kernel(columns, blocks), forest(columns, blocks)])


MAKERS: dict[str, Maker] = {
    "linear": linear,
    "kernel": kernel,
    "ranks": rank_kernel,
    "forest": forest,
    "neighbours": neighbours,
    "folds": in_folds,
    "boosting": boosting,
    "panel": panel,
}
every_judge = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def made_data(n: int = 120, classes: int = 3, width: int = 4) -> tuple[Floats, np.ndarray]:
    random = np.random.default_rng(0)
    labels = np.arange(n) % classes
    centres = random.standard_normal((classes, width)) * 2
    return centres[labels] + random.standard_normal((n, width)), labels


@every_judge
def test_probabilities_are_given_for_every_row(make: Maker) -> None:
    columns, labels = made_data()
    view = make(columns, Blocks.of_one_row(120)).look(np.ones(120), one_hot(labels, 3))
    assert view.probability.shape == (120, 3)
    assert np.all(view.probability >= 0)
    np.testing.assert_allclose(view.probability.sum(1), 1)
    assert (view.probability.argmax(1) == labels).mean() > 0.7


@every_judge
def test_a_changed_label_changes_no_answer_for_its_own_row(make: Maker) -> None:
    columns, labels = made_data()
    judge, targets = make(columns, Blocks.of_one_row(120)), one_hot(labels, 3)
    view = judge.look(np.ones(120), targets)
    for row in (0, 7, 119):
        changed = targets.copy()
        changed[row] = [0.2, 0.5, 0.3] if row == 7 else np.roll(changed[row], 1)
        again = judge.look(np.ones(120), changed, view.settings)
        np.testing.assert_allclose(again.probability[row], view.probability[row], atol=1e-8)
        assert np.abs(again.probability - view.probability).max() > 1e-4, "nobody heard of the change"


@every_judge
def test_a_changed_label_changes_no_answer_in_its_block(make: Maker) -> None:
    columns, labels = made_data()
    blocks = Blocks(np.arange(120) // 3 if make is not neighbours else np.arange(120) // 2)
    judge, targets = make(columns, blocks), one_hot(labels, 3)
    view = judge.look(np.ones(120), targets)
    changed = targets.copy()
    changed[6] = np.roll(changed[6], 1)
    again = judge.look(np.ones(120), changed, view.settings)
    own = blocks.number == blocks.number[6]
    np.testing.assert_allclose(again.probability[own], view.probability[own], atol=1e-8)


@every_judge
def test_a_row_of_weight_zero_teaches_nothing_and_is_judged(make: Maker) -> None:
    columns, labels = made_data()
    judge, targets = make(columns, Blocks.of_one_row(120)), one_hot(labels, 3)
    weights = np.ones(120)
    weights[:10] = 0
    view = judge.look(weights, targets)
    changed = targets.copy()
    changed[:10] = np.roll(changed[:10], 1, axis=1)
    again = judge.look(weights, changed, view.settings)
    np.testing.assert_allclose(again.probability, view.probability, atol=1e-10)
    assert (view.probability[:10].argmax(1) == labels[:10]).mean() > 0.6


@every_judge
def test_settings_handed_back_repeat_the_view(make: Maker) -> None:
    columns, labels = made_data()
    judge, targets = make(columns, Blocks.of_one_row(120)), one_hot(labels, 3)
    view = judge.look(np.ones(120), targets)
    again = judge.look(np.ones(120), targets, view.settings)
    np.testing.assert_array_equal(again.probability, view.probability)


@every_judge
@pytest.mark.parametrize("classes", [2, 20, 1_000])
def test_two_classes_or_a_thousand(make: Maker, classes: int) -> None:
    n = max(200, 3 * classes)
    if make in (in_folds, boosting) and classes == 1_000:
        pytest.skip("it is the classifier that is slow")
    columns, labels = made_data(n, classes, 4 if classes < 1_000 else 40)
    view = make(columns, Blocks.of_one_row(n)).look(np.ones(n), one_hot(labels, classes))
    assert view.probability.shape == (n, classes)
    assert (view.probability.argmax(1) == labels).mean() > 1.5 / classes


@every_judge
def test_an_answer_has_the_precision_of_the_targets(make: Maker) -> None:
    columns, labels = made_data(200, 20)
    judge, targets = make(columns, Blocks(np.arange(200) // 2)), one_hot(labels, 20)
    double = judge.look(np.ones(200), targets)
    single = judge.look(np.ones(200), one_hot(labels, 20, np.float32), double.settings)
    assert (double.probability.dtype, single.probability.dtype) == (np.float64, np.float32)
    np.testing.assert_allclose(single.probability, double.probability, atol=1e-5)
    chosen = judge.look(np.ones(200), one_hot(labels, 20, np.float32)).settings
    assert chosen == pytest.approx(double.settings, rel=0.05)


@every_judge
def test_parts_of_any_size_give_the_same_answer(make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, labels = made_data()
    judge, targets = make(columns, Blocks(np.arange(120) // 2)), one_hot(labels, 3)
    view = judge.look(np.ones(120), targets)
    monkeypatch.setattr("stepe.beliefs.parts.CELLS", 7)
    again = judge.look(np.ones(120), targets, view.settings)
    np.testing.assert_allclose(again.probability, view.probability, atol=1e-10)


@pytest.mark.parametrize(("make", "most"), [(linear, 1.5), (neighbours, 1.5), (forest, 4), (panel, 6)])
def test_few_arrays_of_rows_by_classes_are_made(make: Maker, most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, labels = made_data(2_000, 500, 10)
    judge, targets, weights = make(columns, Blocks.of_one_row(2_000)), one_hot(labels, 500, np.float32), np.ones(2_000)
    settings = judge.look(weights, targets).settings
    monkeypatch.setattr("stepe.beliefs.parts.CELLS", 10_000)
    tracemalloc.start()
    judge.look(weights, targets, settings)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < most * targets.nbytes


@every_judge
def test_threads_of_the_arithmetic_change_nothing_beyond_rounding(make: Maker) -> None:
    columns, labels = made_data()
    answers = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            judge = make(columns, Blocks.of_one_row(120))
            settings = answers[0].settings if answers else None
            answers.append(judge.look(np.ones(120), one_hot(labels, 3), settings))
    np.testing.assert_allclose(answers[1].probability, answers[0].probability, atol=1e-7)


@every_judge
def test_what_a_label_does_to_its_own_row_through_shared_settings_falls_with_the_rows(make: Maker) -> None:
    """Penalty, temperature and shares are chosen by all rows, a row's own label among them."""

    def effect(n: int) -> float:
        columns, labels = made_data(n)
        judge, targets = make(columns, Blocks.of_one_row(n)), one_hot(labels, 3)
        view, changes = judge.look(np.ones(n), targets), []
        for row in (1, n // 3, n // 2, n - 2):
            changed = targets.copy()
            changed[row] = np.roll(changed[row], 1)
            again = judge.look(np.ones(n), changed)
            changes.append(np.abs(again.probability[row] - view.probability[row]).max())
        return float(np.mean(changes))

    few, many = effect(100), effect(1_600)
    assert many < max(few / 2, 1e-12)
    assert many < 0.005


@every_judge
def test_a_class_of_one_row_and_constant_columns(make: Maker) -> None:
    columns, labels = made_data(60, 2)
    columns[:, 3] = 7
    labels[0] = 2
    view = make(columns, Blocks.of_one_row(60)).look(np.ones(60), one_hot(labels, 3))
    assert np.isfinite(view.probability).all()


@every_judge
def test_all_weights_zero_leave_every_class_possible(make: Maker) -> None:
    columns, labels = made_data(60, 2)
    view = make(columns, Blocks.of_one_row(60)).look(np.zeros(60), one_hot(labels, 2))
    np.testing.assert_allclose(view.probability, 0.5, atol=1e-6)


@every_judge
def test_copies_do_not_vouch_for_each_other(make: Maker) -> None:
    """Of noise, a judge that sees copies of a row under the same label learns it by heart."""
    random = np.random.default_rng(3)
    columns = np.repeat(random.standard_normal((60, 4)), 2, axis=0)
    labels = np.repeat(random.integers(0, 2, 60), 2)
    together = make(columns, Blocks(np.arange(120) // 2)).look(np.ones(120), one_hot(labels, 2))
    right = together.probability[np.arange(120), labels]
    assert right.mean() < 0.6


def test_threads_do_not_change_what_a_forest_says() -> None:
    columns, labels = made_data()
    one = forest(columns, Blocks.of_one_row(120))
    targets = one_hot(labels, 3)
    np.testing.assert_array_equal(
        one.look(np.ones(120), targets).probability,
        replace(one, jobs=4).look(np.ones(120), targets).probability,
    )


def test_a_panel_prefers_the_judge_that_knows_more() -> None:
    columns, labels = made_data()
    blocks = Blocks.of_one_row(120)
    noise = np.random.default_rng(0).standard_normal(columns.shape)
    blind = replace(linear(noise, blocks), name="blind")
    settings = Panel([linear(columns, blocks), blind]).look(np.ones(120), one_hot(labels, 3)).settings
    assert settings["linear share"] > 0.8
    assert settings["linear share"] + settings["blind share"] == pytest.approx(1)


@pytest.mark.parametrize("classes", [3, 20], ids=["by the classes", "by directions"])
def test_rows_of_a_block_never_vote_on_each_other_in_a_forest(classes: int) -> None:
    columns, labels = made_data(120, classes)
    targets, blocks = one_hot(labels, classes), Blocks(np.arange(120) // 3)
    for tree in forest(columns, blocks)._grow(np.ones(120), targets):
        changed = targets.copy()
        changed[tree.unseen] = np.roll(changed[tree.unseen], 1, axis=1)
        unseen = blocks.number[tree.unseen]
        assert not np.isin(unseen, np.delete(blocks.number, tree.unseen)).any(), "a block was torn apart"


@every_judge
def test_a_row_that_teaches_nothing_is_not_judged_by_its_block(make: Maker) -> None:
    """A row of a patient that was dropped must not be confirmed by the other rows of that patient."""
    columns, labels = made_data()
    blocks = Blocks(np.arange(120) // 2)
    judge, targets, weights = make(columns, blocks), one_hot(labels, 3), np.ones(120)
    weights[0] = 0
    view = judge.look(weights, targets)
    changed = targets.copy()
    changed[1] = np.roll(changed[1], 1)
    again = judge.look(weights, changed, view.settings)
    np.testing.assert_allclose(again.probability[0], view.probability[0], atol=1e-8)
