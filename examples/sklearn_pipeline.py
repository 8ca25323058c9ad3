"""Step-E where scikit-learn is at home: a text pipeline, and trees on a table.

Some labels of each are made wrong; how many of them are found?

    python examples/sklearn_pipeline.py
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from stepe import StepEClassifier

TOPICS = {
    "garden": "roses soil seeds watering pruning hedge compost shade bulbs spring lawn beds",
    "kitchen": "flour oven butter whisk simmer garlic roast knife recipe pepper dough sauce",
    "sailing": "harbour anchor wind tide sail hull mast knots crew deck rudder course",
}
COMMON = "the a of in after before with we they some very much today again perhaps always"


def write_texts(n: int, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Short notes: a few words of their topic among words that say nothing."""
    topics = draw.choice(list(TOPICS), n)
    words = [[*draw.choice(TOPICS[topic].split(), 4), *draw.choice(COMMON.split(), 8)] for topic in topics]
    return np.array([" ".join(draw.permutation(each)) for each in words]), topics


def mislabel(labels: np.ndarray, rate: float, draw: np.random.Generator) -> np.ndarray:
    """Give some samples the label of another class."""
    classes, codes = np.unique(labels, return_inverse=True)
    wrong = draw.random(len(labels)) < rate
    shift = draw.integers(1, len(classes), len(labels))
    return classes[np.where(wrong, (codes + shift) % len(classes), codes)]


def report(name: str, model: StepEClassifier, given: np.ndarray, true: np.ndarray, accuracy: float) -> None:
    rate, flagged = model.noise_rate_, model.issues_["row"].to_numpy()
    right = (given != true)[flagged].mean() if len(flagged) else 1.0
    print(f"{name}: accuracy {accuracy:.1%}")
    print(f"  {(given != true).mean():.1%} of the labels are wrong, estimated {rate.rate:.1%}")
    print(f"  {len(flagged)} labels look wrong, and {right:.1%} of them are")
    print(model.issues_[["row", "given_label", "suggested_label", "suspicion"]].head(3).to_string(index=False))


def main() -> None:
    draw = np.random.default_rng(0)

    texts, topics = write_texts(900, draw)
    train, test, true, test_topics = train_test_split(texts, topics, random_state=0)
    given = mislabel(true, 0.3, draw)
    pipeline = make_pipeline(TfidfVectorizer(), StepEClassifier())
    pipeline.fit(train, given)
    report("texts", pipeline[-1], given, true, pipeline.score(test, test_topics))

    table, diagnosis = load_breast_cancer(return_X_y=True)
    train, test, true, test_diagnosis = train_test_split(table, diagnosis, test_size=0.5, random_state=0)
    given = mislabel(true, 0.2, draw)
    plain = HistGradientBoostingClassifier(max_iter=30, random_state=0)
    print(f"table, plain: accuracy {plain.fit(train, given).score(test, test_diagnosis):.1%}")
    model = StepEClassifier(plain).fit(train, given)
    report("table, Step-E", model, given, true, model.score(test, test_diagnosis))


if __name__ == "__main__":
    main()
