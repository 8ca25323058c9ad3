"""Step-E as a scikit-learn classifier."""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import stepe
from stepe import InputError, StepEClassifier
from stepe.beliefs.belief import Belief
from stepe.beliefs.issues import COLUMNS
from stepe.beliefs.rate import Rate
from stepe.methods.parts.guesses import believe_guess

ONE_ROW_IS_NOT_TWO = "a row is judged and dropped as one: two rows of weight 1 may part ways, one of weight 2 cannot"
EXPECTED_TO_FAIL = {
    f"check_sample_weight_equivalence_on_{kind}_data": ONE_ROW_IS_NOT_TWO for kind in ("dense", "sparse")
}
SMALL = {"epochs": 8, "hidden": (32,), "dropout": 0.2}


@parametrize_with_checks(
    [StepEClassifier(**SMALL), StepEClassifier(LogisticRegression())],
    expected_failed_checks=lambda estimator: EXPECTED_TO_FAIL if estimator.estimator is None else {},
)
def test_keeps_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    """Training rows with 40% wrong labels, and clean test rows."""
    x, y = load_digits(return_X_y=True)
    x, test_x, y, test_y = train_test_split(x[:1200], y[:1200], test_size=0.25, random_state=0)
    draw = np.random.default_rng(0)
    wrong = draw.random(len(y)) < 0.4
    given = np.where(wrong, (y + draw.integers(1, 10, len(y))) % 10, y)
    return x, y, given, test_x, test_y


@pytest.fixture
def table():
    """Two clouds as a table with an index and names for classes; every sixth label is wrong."""
    draw = np.random.default_rng(1)
    true = np.arange(120) % 2
    frame = pd.DataFrame(draw.normal(size=(120, 3)) + 3 * true[:, None], columns=["a", "b", "c"])
    frame.index = [f"row {number}" for number in range(120)]
    wrong = np.arange(120) % 6 == 0
    return frame, pd.Series(np.where(true ^ wrong, "yes", "no"), index=frame.index), wrong


ESTIMATORS = [None, ExtraTreesClassifier(n_estimators=30, random_state=0)]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=["network", "trees"])
def test_finds_wrong_labels_and_learns_more_than_without(digits, estimator):
    x, y, given, test_x, test_y = digits
    plain = ExtraTreesClassifier(n_estimators=30, random_state=0).fit(x, given)
    alone = 1 - plain.predict_proba(x)[np.arange(len(x)), given]
    model = StepEClassifier(estimator, epochs=30 if estimator is None else None).fit(x, given)
    noisy = given != y
    found = roc_auc_score(noisy, model.samples_["suspicion"])
    assert found > max(0.97, roc_auc_score(noisy, alone))
    assert noisy[model.issues_["row"]].mean() > 0.85
    assert model.score(test_x, test_y) > plain.score(test_x, test_y) - (0.02 if estimator is None else 0.0)
    assert model.noise_rate_.low <= noisy.mean() <= model.noise_rate_.high


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=["network", "trees"])
def test_flags_next_to_nothing_where_all_labels_are_right(digits, estimator):
    x, y, *_ = digits
    model = StepEClassifier(estimator, epochs=30 if estimator is None else None).fit(x, y)
    assert len(model.issues_) < 0.01 * len(x)
    assert model.noise_rate_.rate < 0.01


@pytest.mark.parametrize("estimator", [None, RandomForestClassifier(20)], ids=["network", "trees"])
def test_issues_keep_index_labels_and_columns(table, estimator):
    frame, y, wrong = table
    model = StepEClassifier(estimator, epochs=20 if estimator is None else None).fit(frame, y)
    issues, samples = model.issues_, model.samples_
    assert tuple(issues.columns) == tuple(samples.columns) == COLUMNS
    assert list(samples.index) == list(samples["id"]) == list(frame.index)
    assert set(issues.index) <= set(frame.index)
    assert issues["rank"].tolist() == list(range(1, len(issues) + 1))
    assert (samples["given_label"] == y).all()
    assert (issues["given_label"] != issues["suggested_label"]).all()
    assert set(issues["suggested_label"]) <= set(model.classes_) == {"no", "yes"}
    assert wrong[issues["row"]].mean() > 0.8
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert isinstance(model.noise_rate_, Rate)
    corrected = y.copy()
    corrected[issues.index] = issues["suggested_label"]
    assert (corrected != y).sum() == len(issues)


def test_where_nothing_is_suggested_other_numbers_stay_whole(table, monkeypatch):
    frame, y, _ = table

    def silent(*arguments: Any) -> Belief:
        belief = believe_guess(*arguments)
        return replace(belief, suggestion=np.where(belief.flagged, -1, belief.suggestion))

    monkeypatch.setattr("stepe.methods.parts.guesses.believe_guess", silent)
    numbers = pd.Series((y == "yes").to_numpy() * 7, index=frame.index)
    model = StepEClassifier(RandomForestClassifier(20)).fit(frame, numbers)
    assert model.issues_["suggested_label"].isna().all()
    assert len(model.issues_)
    assert {type(label) for label in model.samples_["suggested_label"].dropna()} == {int}
    found = model.issues_.dropna(subset=["suggested_label"])
    numbers.loc[found.index] = found["suggested_label"].astype(numbers.dtype)
    assert numbers.dtype.kind == "i"


def test_numbers_as_labels_stay_numbers(table):
    frame, y, _ = table
    model = StepEClassifier(**SMALL).fit(frame.to_numpy(), (y == "yes").to_numpy() * 7)
    assert model.samples_["given_label"].tolist() == ((y == "yes") * 7).tolist()
    assert model.samples_.index.tolist() == list(range(120))
    assert set(model.predict(frame.to_numpy())) == {0, 7}


TEXTS = [f"{'good fine lovely' if number % 2 else 'bad awful poor'} thing {number % 13}" for number in range(80)]
STARS = ["up" if number % 2 else "down" for number in range(80)]


def test_a_pipeline_behind_tfidf_stays_sparse(monkeypatch):
    import scipy.sparse

    for kind in (scipy.sparse.csr_matrix, scipy.sparse.csr_array):
        monkeypatch.setattr(kind, "toarray", lambda self, *_, **__: pytest.fail("a dense matrix was made"))
        monkeypatch.setattr(kind, "todense", lambda self, *_, **__: pytest.fail("a dense matrix was made"))
    pipeline = make_pipeline(TfidfVectorizer(), StepEClassifier(epochs=8)).fit(TEXTS, STARS)
    assert pipeline.score(TEXTS, STARS) == 1
    assert set(pipeline[-1].samples_["given_label"]) == {"up", "down"}


def test_sparse_and_dense_rows_of_the_same_numbers_are_predicted_alike(table):
    frame, y, _ = table
    x = np.where(frame > 1, frame, 0)
    for train in (x, csr_array(x)):
        model = StepEClassifier(**SMALL).fit(train, y)
        np.testing.assert_allclose(model.predict_proba(x), model.predict_proba(csr_array(x)))


def test_a_row_without_entries_is_predicted():
    x = csr_array(np.vstack([np.zeros((1, 3)), np.tile(np.eye(3), (10, 1))]))
    y = [0, *(10 * [0, 1, 1])]
    assert np.isfinite(StepEClassifier(**SMALL).fit(x, y).predict_proba(x)).all()


def test_a_search_in_two_processes_finds_the_better_setting(table):
    frame, y, _ = table
    search = GridSearchCV(StepEClassifier(**SMALL), {"learning_rate": [1e-6, 0.05]}, n_jobs=2, cv=2).fit(frame, y)
    assert search.best_params_ == {"learning_rate": 0.05}
    nested = GridSearchCV(
        StepEClassifier(ExtraTreesClassifier(10, random_state=0)), {"estimator__max_depth": [1, None]}, cv=2
    )
    assert nested.fit(frame, y).best_estimator_.estimator_.max_depth in (1, None)


@pytest.mark.parametrize("estimator", [None, RandomForestClassifier(10)], ids=["network", "trees"])
def test_the_same_seed_gives_the_same_model_and_a_pickle_predicts_like_it(table, estimator):
    frame, y, _ = table
    model = StepEClassifier(estimator, epochs=8 if estimator is None else None, random_state=3).fit(frame, y)
    again = clone(model).fit(frame, y)
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(model.predict_proba(frame), again.predict_proba(frame))
    np.testing.assert_array_equal(model.predict_proba(frame), loaded.predict_proba(frame))
    pd.testing.assert_frame_equal(model.issues_, loaded.issues_)
    other = clone(model).set_params(random_state=4).fit(frame, y)
    assert not np.array_equal(model.predict_proba(frame), other.predict_proba(frame))


def test_open_random_states_draw_anew_each_time(table):
    frame, y, _ = table
    first, second = (StepEClassifier(**SMALL, random_state=None).fit(frame, y) for _ in range(2))
    assert not np.array_equal(first.predict_proba(frame), second.predict_proba(frame))


class Weightless(ClassifierMixin, BaseEstimator):
    """Names the larger class; neither probabilities nor weights."""

    def fit(self, X, y):  # noqa: N803
        self.classes_, counts = np.unique(y, return_counts=True)
        self.larger_ = self.classes_[counts.argmax()]
        return self

    def predict(self, X):  # noqa: N803
        return np.full(len(X), self.larger_)


@pytest.mark.parametrize("estimator", [LinearSVC(), KNeighborsClassifier()], ids=["scores", "neighbours"])
def test_any_classifier_will_do(table, estimator):
    frame, y, wrong = table
    model = StepEClassifier(estimator).fit(frame, y)
    assert wrong[model.issues_["row"]].mean() > 0.8
    assert hasattr(model, "predict_proba") == hasattr(estimator, "predict_proba")
    assert (model.predict(frame) == y).mean() > 0.7


def test_a_classifier_that_knows_nothing_has_nothing_dropped(table):
    frame, y, _ = table
    model = StepEClassifier(Weightless()).fit(frame, y)
    assert model.noise_rate_.is_unknown
    assert not model.samples_["dropped"].any()


def test_the_estimator_reads_tables_as_they_are(table):
    """Missing values, and columns that only it understands."""
    frame, y, wrong = table
    frame = frame.assign(
        kind=pd.Categorical(np.where(np.arange(120) % 2, "x", "z")), a=frame["a"].where(frame["a"] > 0)
    )
    trees = HistGradientBoostingClassifier(max_iter=10, categorical_features="from_dtype")
    model = StepEClassifier(trees, rounds=2).fit(frame, y)
    assert wrong[model.issues_["row"]].mean() > 0.7
    assert list(model.feature_names_in_) == ["a", "b", "c", "kind"]


def test_the_estimator_may_be_a_pipeline_over_texts():
    model = StepEClassifier(make_pipeline(TfidfVectorizer(), LogisticRegression())).fit(TEXTS, STARS)
    assert model.score(TEXTS, STARS) == 1


@pytest.mark.parametrize("estimator", [None, LogisticRegression()], ids=["network", "estimator"])
def test_a_row_of_weight_0_is_not_there(table, estimator):
    frame, y, _ = table
    options = SMALL if estimator is None else {}
    weight = np.ones(120)
    weight[::10] = 0
    weighted = StepEClassifier(estimator, **options).fit(frame, y, sample_weight=weight)
    removed = StepEClassifier(estimator, **options).fit(frame[weight > 0], y[weight > 0], sample_weight=np.ones(108))
    np.testing.assert_array_equal(weighted.predict_proba(frame), removed.predict_proba(frame))
    assert weighted.samples_["row"].tolist() == np.flatnonzero(weight).tolist()
    assert list(weighted.samples_.index) == list(frame.index[weight > 0])


def test_weights_pull_towards_the_heavier_class(table):
    frame, y, _ = table
    towards_yes = StepEClassifier(**SMALL, rho_max=0.0).fit(frame, y, sample_weight=np.where(y == "yes", 20.0, 1.0))
    evenly = StepEClassifier(**SMALL, rho_max=0.0).fit(frame, y)
    assert (towards_yes.predict(frame) == "yes").mean() > (evenly.predict(frame) == "yes").mean()


def test_trusted_rows_are_never_dropped(table):
    frame, y, _ = table
    trusted = np.zeros(120, dtype=bool)
    trusted[:60] = True
    for estimator, options in ((None, SMALL), (LogisticRegression(), {})):
        samples = StepEClassifier(estimator, rho_max=0.3, **options).fit(frame, y, trusted=trusted).samples_
        assert not samples["dropped"][:60].any()
        assert samples["dropped"][60:].any()


def test_a_known_rate_says_how_much_is_dropped(table):
    frame, y, _ = table
    for options in ({"noise_rate": 0.15}, {"rho_max": 0.2}):
        model = StepEClassifier(LogisticRegression(), **options).fit(frame, y)
        assert model.samples_["dropped"].sum() == 24


def test_without_an_estimate_there_is_none(table):
    frame, y, _ = table
    model = StepEClassifier(**SMALL, rho_max=0.2, probe="in-sample").fit(frame, y)
    assert model.noise_rate_ is None
    assert len(model.history_) == SMALL["epochs"]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (StepEClassifier(LogisticRegression(), epochs=3, dropout=0.1), "epochs and dropout are for the network"),
        (StepEClassifier(rounds=3), "rounds are for another estimator"),
        (StepEClassifier(LinearRegression()), "must be a classifier"),
        (StepEClassifier(LogisticRegression(), rounds=0), "at least 1"),
        (StepEClassifier(LogisticRegression(), probe="in-sample"), "judged by others"),
        (StepEClassifier(LogisticRegression(), probe="cross:500"), "120 rows cannot be split into 500 folds"),
        (StepEClassifier(epochs=1), "2 epochs or more"),
    ],
)
def test_settings_that_make_no_sense_say_so(table, model, message):
    frame, y, _ = table
    with pytest.raises(InputError, match=message):
        model.fit(frame, y)


def test_weights_that_nobody_would_use_say_so(table):
    frame, y, _ = table
    with pytest.raises(InputError, match="takes no sample_weight"):
        StepEClassifier(Weightless()).fit(frame, y, sample_weight=np.ones(120))


def test_the_classifier_is_at_hand():
    assert stepe.StepEClassifier is StepEClassifier
