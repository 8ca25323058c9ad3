"""Which judges look at what."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from stepe.audit import panel
from stepe.audit.panel import DEFAULT, EXACT, MAKERS, NEIGHBOURS, Shown, blocks_of, has_many_values, panel_for
from stepe.audit.rounds import audit
from stepe.errors import InputError
from stepe.judges.base import one_hot
from stepe.judges.blocks import Blocks
from stepe.judges.neighbours import nearest
from stepe.loop.metrics import auroc

RANDOM = np.random.default_rng(0)
LABELS = RANDOM.integers(0, 2, 60)
ROWS = RANDOM.normal(size=(60, 5)) + LABELS[:, None]
ALONE = Blocks.of_one_row(60)


def names(kind, shown, judges=None):
    return [judge.name for judge in panel_for(kind, shown, judges).judges]


@pytest.mark.parametrize("kind", DEFAULT)
def test_each_kind_of_data_has_its_judges(kind):
    assert names(kind, Shown(ROWS, ALONE)) == list(DEFAULT[kind])


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("inputs", [ROWS, csr_matrix(ROWS)], ids=["dense", "sparse"])
def test_every_judge_can_be_asked_for_by_name(name, inputs):
    asked = panel_for("features", Shown(inputs, ALONE), [name])
    guess = asked.look(np.ones(60), one_hot(LABELS, 2)).probability
    assert [judge.name for judge in asked.judges] == [name]
    assert (guess.argmax(1) == LABELS).mean() > 0.7


def test_judges_are_named_once_and_none_is_unknown():
    assert names("table", Shown(ROWS, ALONE), ["forest", "linear", "forest"]) == ["forest", "linear"]
    with pytest.raises(InputError, match="unknown judge 'oracle'; choose among linear, kernel"):
        panel_for("table", Shown(ROWS, ALONE), ["linear", "oracle"])


def test_neighbours_are_left_out_in_so_many_words_where_all_pairs_are_too_many():
    many, said = Shown(np.zeros((EXACT + 1, 1)), Blocks.of_one_row(EXACT + 1)), []
    assert [judge.name for judge in panel_for("features", many, say=said.append).judges] == ["linear"]
    assert said == [
        "neighbours are left out: among 20,001 rows, to find them takes longer than all else "
        "(--judges linear,neighbours)"
    ]
    assert names("features", Shown(ROWS, ALONE)) == ["linear", "neighbours"]


def test_neighbours_of_many_rows_are_searched_where_they_are_asked_for_and_that_is_installed(monkeypatch):
    asked = []
    monkeypatch.setattr(panel, "EXACT", 50)
    monkeypatch.setattr(panel, "can_search", lambda: True)
    monkeypatch.setattr(panel, "nearly_nearest", lambda rows, k, seed: asked.append(k) or nearest(rows, k))
    assert names("features", Shown(ROWS, ALONE)) == ["linear"]
    assert names("features", Shown(ROWS, ALONE), ["linear", "neighbours"]) == ["linear", "neighbours"]
    assert asked == [NEIGHBOURS]


def test_neighbours_are_found_once_however_many_judges_ask():
    shown = Shown(ROWS, ALONE)
    first, second = (panel_for("features", shown, ["neighbours"]).judges[0] for _ in range(2))
    assert first.found is second.found is shown.neighbours


def test_neighbours_of_sparse_rows_are_those_of_dense_ones():
    dense, sparse = (Shown(rows, ALONE).neighbours for rows in (ROWS, csr_matrix(ROWS)))
    alike = [len(set(one) & set(other)) for one, other in zip(dense.tolist(), sparse.tolist(), strict=True)]
    assert np.mean(alike) > 0.98 * NEIGHBOURS


@pytest.mark.parametrize(
    "inputs", [ROWS, csr_matrix(ROWS), RANDOM.normal(size=(60, 900))], ids=["few", "sparse", "many"]
)
@pytest.mark.parametrize("name", ["linear", "kernel", "ranks"])
def test_a_model_takes_the_rows_as_the_file_has_them(name, inputs):
    """Also where judges were shown the rows on few axes."""
    (judge,) = panel_for("features", Shown(inputs, ALONE), [name]).judges
    settings = judge.look(np.ones(60), one_hot(LABELS, 2)).settings
    model = judge.model(np.ones(60), one_hot(LABELS, 2), settings)
    np.testing.assert_allclose(model.map(inputs), judge.rows, atol=1e-7)
    assert model.predict(inputs[:7]).shape == (7, 2)


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("make", [np.array, csr_matrix])
def test_numbers_that_are_none_are_refused(number, make):
    rows = ROWS.copy()
    rows[3, 1] = number
    with pytest.raises(InputError, match="NaN or infinity; fill such cells"):
        panel_for("table", Shown(make(rows), ALONE))


def test_copies_are_left_out_together_and_so_are_groups():
    texts = ["a", "b", "a", "c", "d", "e"]
    assert blocks_of("text", texts).number.tolist() == [0, 1, 0, 2, 3, 4]
    groups = ["", "x", "", "x", "", "y"]
    assert blocks_of("text", texts, groups).number.tolist() == [0, 1, 0, 1, 2, 3]
    assert blocks_of("text", list("abc"), ["", "", ""]).number.tolist() == [0, 1, 2]


def test_rows_of_a_table_are_copies_only_where_a_column_tells_rows_apart():
    rows = [(1.0, 2.0), (1.0, 2.0)]
    assert blocks_of("table", rows, has_continuous=True).count == 1
    assert blocks_of("table", rows, has_continuous=False).count == 2
    assert blocks_of("features", rows, has_continuous=False).count == 1
    assert not has_many_values(np.repeat(np.arange(50.0), 3)[:, None])
    assert has_many_values(np.arange(51.0)[:, None])


def suspicion_of(kind, rows, blocks, labels):
    return 1 - audit(panel_for(kind, Shown(rows, blocks)), labels, 2).belief.p_right


def test_a_table_of_three_yes_or_no_columns_finds_its_noise():
    """Rows are the same where people are not: left out together, nobody could judge anybody."""
    random = np.random.default_rng(1)
    rows = random.integers(0, 2, (400, 3)).astype(float)
    truth = (rows.sum(1) > 1).astype(int)
    wrong = random.uniform(size=400) < 0.15
    blocks = blocks_of("table", list(map(tuple, rows)), has_continuous=has_many_values(rows))
    assert blocks.count == 400
    assert auroc(suspicion_of("table", rows, blocks, np.where(wrong, 1 - truth, truth)), wrong) > 0.95


def test_copied_texts_under_the_same_wrong_label_are_caught():
    random = np.random.default_rng(2)
    n, copies = 240, 20
    truth = random.integers(0, 2, n)
    words = random.poisson(0.3, (n, 60)) + random.poisson(0.5, (n, 60)) * (np.arange(60) // 30 == truth[:, None])
    texts = np.concatenate([words, np.repeat(words[:copies], 4, axis=0)]).astype(float)
    origin = np.concatenate([np.arange(n), np.repeat(np.arange(copies), 4)])
    wrong = origin < copies
    labels = np.where(wrong, 1 - truth[origin], truth[origin])
    blocks = blocks_of("text", origin.tolist())
    caught = suspicion_of("text", csr_matrix(texts), blocks, labels)
    trusting = suspicion_of("text", csr_matrix(texts), Blocks.of_one_row(len(labels)), labels)
    assert auroc(caught, wrong) > 0.9
    assert auroc(trusting, wrong) < 0.75, "copies vouch for each other"
