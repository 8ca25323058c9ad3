"""cleanlab: hand it a run's probabilities, for the issues that Datalab finds besides; or read what it found.

The labels of a run are judged by models that did not train on them, or by one that was kept from learning the wrong
ones by heart: what cleanlab asks for, without the five trainings of a cross-validation.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stepe.app.run import Run
from stepe.beliefs.issues import COLUMNS
from stepe.errors import InputError, RunError

if TYPE_CHECKING:
    import pandas as pd

LABEL = "label"


def datalab(run: Run | str | Path, **options: Any) -> Any:
    """Make a ``cleanlab.Datalab`` of a run's samples that has looked for issues with the run's probabilities.

    ``options`` go to ``find_issues``: ``issue_types``, ``features``... Its rows follow ``probabilities(run)``; the
    data it was given has the columns ``id``, ``row`` and ``label``.
    """
    run = run if isinstance(run, Run) else Run(run)
    lab_class = _cleanlab().Datalab
    found = probabilities(run)
    samples = _samples_by_row(run).loc[found.index]
    labels = samples["given_label"].astype(str)
    # Datalab numbers the classes that occur, in the order of their names.
    present = sorted(labels.unique())
    if missing := set(present) - set(found.columns):
        raise RunError(f"{run.path} has no probabilities for the class {min(missing)!r}; clean the data again")
    probability = found[present].to_numpy(dtype=np.float64)
    total = probability.sum(1, keepdims=True)
    probability = np.where(total > 0, probability / np.where(total > 0, total, 1), 1 / len(present))
    data = {"id": samples["id"].tolist(), "row": samples.index.tolist(), LABEL: labels.tolist()}
    lab = lab_class(data, label_name=LABEL, verbosity=0)
    lab.find_issues(pred_probs=probability, **options)
    return lab


def from_datalab(lab: Any) -> "pd.DataFrame":
    """Return what a ``cleanlab.Datalab`` found out about the labels, in stepe's columns, by the rows of its data.

    What only a training knows (how often a sample was dropped, its margin) stays empty.
    """
    import pandas as pd

    try:
        found = lab.get_issues(LABEL)
    except ValueError as error:
        raise InputError(
            f"the Datalab holds no label issues ({error}); call its find_issues(pred_probs=...) first"
        ) from error
    data, n = lab.data, len(found)
    suspicion = 1 - found["label_score"].to_numpy(dtype=np.float64)
    flagged = found["is_label_issue"].to_numpy(dtype=bool)
    rows = data["row"] if "row" in data.column_names else range(n)
    ids = data["id"] if "id" in data.column_names else rows
    order = np.lexsort((np.arange(n), -suspicion, ~flagged))
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(1, n + 1)
    suggested = found["predicted_label"].astype(str)
    table = pd.DataFrame(
        {
            "rank": rank,
            "id": [str(name) for name in ids],
            "row": np.asarray(list(rows), dtype=np.int64),
            "split": "train",
            "given_label": found["given_label"].astype(str).to_numpy(),
            "suggested_label": suggested.to_numpy(),
            "suspicion": suspicion.round(6),
            "suggestion_confidence": np.nan,
            "dropped": False,
            "flagged": flagged,
            "dropped_share": np.nan,
            "margin": np.nan,
            "reason": [
                f"cleanlab says {label}" if flag else "" for flag, label in zip(flagged, suggested, strict=True)
            ],
            "status": "open",
        }
    )
    return table[list(COLUMNS)]


def probabilities(run: Run | str | Path) -> "pd.DataFrame":
    """Return what the run made of every sample: a column per class, a line per row of the input (the index)."""
    import pandas as pd

    run = run if isinstance(run, Run) else Run(run)
    path = run.path / "probabilities.npz"
    if not path.exists():
        raise RunError(
            f"{run.path} holds no probabilities.npz: it is not finished, or kept no running guess; "
            "clean the data again with rho_max='auto' or probe='auto'"
        )
    with np.load(path, allow_pickle=False) as stored:
        rows, values = stored["row"], stored["probability"]
    classes = run.class_names
    # A model may have more outputs than the labels have classes.
    names = [*classes, *(str(number) for number in range(len(classes), values.shape[1]))][: values.shape[1]]
    return pd.DataFrame(values.astype(np.float64), index=pd.Index(rows, name="row"), columns=names)


def _samples_by_row(run: Run) -> "pd.DataFrame":
    """Training samples first: held-out ones of another file have row numbers of their own."""
    samples = run.samples.sort_values("split", key=lambda split: split != "train", kind="stable")
    return samples.drop_duplicates("row").set_index("row")


def _cleanlab() -> Any:
    try:
        found = import_module("cleanlab")
        found.Datalab  # noqa: B018 (imported when it is first asked for; it needs the package datasets)
    except ImportError as error:
        raise InputError(
            f'cleanlab is not installed ({error}); install it with: pip install "stepe[cleanlab]"'
        ) from error
    return found
