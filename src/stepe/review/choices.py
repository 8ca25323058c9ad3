"""Which classes a suspect may be of: those a reviewer is offered first."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from stepe.run.folder import RunFolder

MOST = 9
"""classes that are offered: one for each digit key"""


def likely_classes(run: "RunFolder", rows: Sequence[int]) -> list[list[str]]:
    """Find for each row of the training data up to nine classes other than its label, the likeliest first.

    The running guess knows; without one, the suggestion comes first, then what is most often suggested for that
    label.
    """
    issues = run.issues
    training = run.samples[run.samples["split"] == "train"].set_index("row")
    given = training["given_label"].to_dict()
    suggested = training["suggested_label"].to_dict()
    usual: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for label, other in zip(issues["given_label"], issues["suggested_label"], strict=True):
        usual[label][other] += 1
    often = [name for name, _ in Counter(issues["suggested_label"]).most_common()]
    guesses, known = _guesses(run, rows), set(run.class_names)
    found = []
    for row in rows:
        ranked = [suggested[row], *guesses.get(row, [name for name, _ in usual[given[row]].most_common()]), *often]
        if len(run.class_names) <= MOST + 1:
            ranked += run.class_names
        # A model may have more outputs than there are classes; those are no labels.
        names = dict.fromkeys(name for name in ranked if name != given[row])
        found.append([name for name in names if name in known][:MOST])
    return found


def _guesses(run: "RunFolder", rows: Sequence[int]) -> dict[int, list[str]]:
    """Rank the classes of some rows by their probability, where one is known."""
    path = run.file("probabilities.npz")
    if not path.exists():
        return {}
    with np.load(path, allow_pickle=False) as stored:
        position = {int(row): i for i, row in enumerate(stored["row"])}
        known = [row for row in rows if row in position]
        probability = stored["probability"][[position[row] for row in known]].astype(np.float32)
    order = np.argsort(-probability, axis=1, kind="stable")[:, : MOST + 1]
    names = run.class_names
    return {
        row: [names[i] for i in ranked if i < len(names) and p[i] > 0]
        for row, ranked, p in zip(known, order.tolist(), probability, strict=True)
    }
