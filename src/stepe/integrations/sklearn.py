"""Step-E as a scikit-learn classifier, for pipelines, searches and tables.

.. code-block:: python

    model = make_pipeline(TfidfVectorizer(), StepEClassifier())
    model.fit(texts, labels)
    model[-1].issues_                                              # the labels that look wrong

    StepEClassifier(HistGradientBoostingClassifier()).fit(table, labels)      # any classifier of yours
"""

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, is_classifier
from sklearn.dummy import DummyClassifier
from sklearn.utils import _safe_indexing, check_random_state, get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    _num_samples,
    check_is_fitted,
    has_fit_parameter,
    validate_data,
)
from torch import Tensor, nn

from stepe.app.clean import clean
from stepe.app.networks import default_tuning, parts_that_serve, threads_for
from stepe.audit.rounds import MIN_KEEP, ROUNDS, Audit, audit
from stepe.beliefs.belief import Belief
from stepe.beliefs.issues import Past, issue_table, margins_of
from stepe.beliefs.names import Names
from stepe.beliefs.rate import CAP_OF_ESTIMATE, Rate, rho_max_from_rate
from stepe.data.encoders import FeatureEncoder
from stepe.errors import InputError
from stepe.judges.base import Floats
from stepe.judges.blocks import Blocks
from stepe.judges.folds import InFolds, probabilities, seeded_clone
from stepe.loop.ledger import Ledger
from stepe.loop.randomness import Stream, seeded
from stepe.methods import make_method
from stepe.methods.doors import DEFAULT_METHOD, Door, announce_method
from stepe.methods.eliminating import Eliminating
from stepe.models.mlp import MLP
from stepe.models.sparse import SparseMLP
from stepe.options import declared_options
from stepe.samples.sparse import SparseSamples, SparseScale, entries
from stepe.training.building import check_trusted, find_device
from stepe.training.fit import begin
from stepe.training.issues import past_of
from stepe.training.judging.folds import Folds

if TYPE_CHECKING:
    import pandas as pd

Labels = npt.NDArray[Any]

FOLDS = 5
PREDICTED_AT_ONCE = 4096
SPARSE_RATE = 2e-3
"""weighted sums move faster than the means of a :class:`~stepe.models.text.TextBag`, whose rate this would be"""
TRAINING = ("epochs", "hidden", "dropout", "learning_rate", "batch_size")
NETWORK_ALONE = (*TRAINING, "warmup")
ESTIMATOR_ALONE = ("rounds", "evidence", "n_jobs")


def _index_of(x: Any, y: Any) -> "pd.Index[Any]":
    """Name the rows: by their index, where they have one."""
    import pandas as pd

    found = next((data.index for data in (x, y) if isinstance(data, pd.DataFrame | pd.Series)), None)
    return pd.RangeIndex(_num_samples(x)) if found is None else found


def _as_sparse(x: Any) -> Any:
    from scipy.sparse import csr_array

    return x if hasattr(x, "tocsr") else csr_array(x)


def _as_dense(x: Any) -> Floats:
    found: Floats = x.toarray() if hasattr(x, "tocsr") else x
    return found


def _says(name: str) -> Any:
    """Offer a method that the network has, and another estimator if it has it itself."""

    def has(self: "StepEClassifier") -> bool:
        inner = getattr(self, "estimator_", self.estimator)
        return inner is None or hasattr(inner, name)

    return available_if(has)


class StepEClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that is not fooled by wrong labels, and says which they are.

    Without ``estimator`` it trains a small network by Step-E+, of standardised columns or, where ``X`` is sparse, of
    its entries alone. With one, clones of it judge the rows that they were not fitted on, in a few rounds.

    Args:
        estimator: another classifier to train instead of the network: trees, a pipeline...
        rho_max: largest share of the rows ever dropped; ``"auto"``: found out, or from ``noise_rate``.
        noise_rate: known share of wrong labels.
        min_keep: share of every class that is never dropped; by default half in rounds, nothing in a network.
        probe: who judges the rows, see :func:`stepe.fit`. ``"auto"``: models that never trained on them, as long as
            that makes a difference. An estimator's rows are always judged by others: ``"cross:5"``, ``"cross:2x2"``.
        epochs: of the network; by default by the number of rows.
        warmup: epochs before anything is dropped; by default a sixth.
        hidden: widths of the network's layers.
        dropout: of the network.
        learning_rate: of the network.
        batch_size: of the network.
        rounds: how often an estimator's rows are judged, each time without those that seem wrong by then: at most 3 by
            default.
        evidence: how much a label says for itself, where an estimator judges: 1 by default, for classes that overlap;
            less where an expert could always tell them apart.
        n_jobs: how many of a round's clones are fitted at a time.
        device: where the network trains.
        random_state: everything random follows from it, an open ``random_state`` of the estimator too; ``None`` is
            another one each time.

    Attributes:
        classes_: the labels that occur.
        issues_: the rows whose labels look wrong, most suspicious first, under the index of ``X``.
        samples_: every row, in the same columns.
        noise_rate_: estimated share of wrong labels (``rate``, ``low``, ``high``); ``None`` where it was not estimated,
            for ``rho_max`` is a number and ``probe`` is in-sample.
        history_: what happened, a row an epoch of the network, or a round.
        network_: the trained network, in double precision on the CPU; ``None`` where there is an estimator.
        estimator_: the fitted clone, trained on what was kept; ``None`` where there is none.
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        rho_max: "float | Literal['auto']" = "auto",
        noise_rate: float | None = None,
        min_keep: float | None = None,
        probe: str = "auto",
        epochs: int | None = None,
        warmup: "int | Literal['auto'] | None" = None,
        hidden: Sequence[int] | None = None,
        dropout: float | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        rounds: int | None = None,
        evidence: float | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
        random_state: "int | np.random.RandomState | None" = 0,
    ):
        self.estimator = estimator
        self.rho_max = rho_max
        self.noise_rate = noise_rate
        self.min_keep = min_keep
        self.probe = probe
        self.epochs = epochs
        self.warmup = warmup
        self.hidden = hidden
        self.dropout = dropout
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.rounds = rounds
        self.evidence = evidence
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, trusted: Any = None) -> "StepEClassifier":  # noqa: N803
        """Train, and find the labels that are probably wrong.

        ``sample_weight`` says how much a row counts in training; which rows are dropped goes by their losses alone.
        ``trusted`` marks rows whose label was checked: they are never dropped.
        """
        self._check_options()
        index = _index_of(X, y)
        x, y = self._checked(X, y)
        rows = np.arange(len(y))
        weight = None
        if sample_weight is not None:
            self._check_weights_are_of_use()
            weight = _check_sample_weight(sample_weight, x, dtype=np.float64, ensure_non_negative=True)
            rows = np.flatnonzero(weight)  # a row that counts nothing is not there
            x, y, weight = _safe_indexing(x, rows), y[rows], weight[rows]
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(f"all labels are of one class, {y[0] if len(y) else None!r}; at least two are needed")
        checked = None if trusted is None else check_trusted(np.asarray(trusted), len(index))[rows]
        labels = torch.from_numpy(codes.astype(np.int64))
        door: Door = "StepEClassifier" if self.estimator is None else "StepEClassifier(estimator)"
        announce_method(door, DEFAULT_METHOD[door])
        if self.estimator is None:
            method, ledger = self._train_network(x, y, labels, weight, checked)
            self._report(method, ledger, rows, index)
            return self
        found, estimator = self._audit(x, labels.numpy(), weight, None if checked is None else checked.numpy())
        self.network_: nn.Module | None = None
        self.estimator_: Any = estimator
        self._report_audit(found, labels.numpy(), rows, index)
        return self

    def _check_options(self) -> None:
        other = NETWORK_ALONE if self.estimator is not None else ESTIMATOR_ALONE
        if ignored := [name for name in other if getattr(self, name) is not None]:
            whose = "the network" if self.estimator is not None else "another estimator"
            raise InputError(f"{' and '.join(ignored)} are for {whose}; leave them out here")
        if self.estimator is not None and not is_classifier(self.estimator):
            raise InputError(f"estimator is {self.estimator!r}; it must be a classifier, for instance of scikit-learn")

        known = declared_options(clean)
        for name in ("rho_max", "noise_rate", *(("min_keep", "evidence") if self.estimator is not None else ())):
            known[name].check(getattr(self, name))

    def _check_weights_are_of_use(self) -> None:
        if self.estimator is not None and not has_fit_parameter(self.estimator, "sample_weight"):
            raise InputError(f"{type(self.estimator).__name__}.fit() takes no sample_weight; leave it out here too")

    def _checked(self, x: Any, y: Any) -> tuple[Any, Labels]:
        if self.estimator is None:
            x, y = validate_data(self, x, y, accept_sparse="csr", dtype=np.float64)
        else:  # the estimator knows best what it can read
            y = validate_data(self, y=y)
            validate_data(self, x, y, skip_check_array=True)
            x, y = indexable(x, y)
        check_classification_targets(y)
        return x, y

    def _train_network(
        self, x: Any, y: Labels, labels: Tensor, weight: Floats | None, trusted: Tensor | None
    ) -> tuple[Eliminating, Ledger]:
        sparse = hasattr(x, "tocsr")
        asked = {name: getattr(self, name) for name in TRAINING if getattr(self, name) is not None}
        preset = default_tuning("text" if sparse else "features", len(y))
        preset = replace(replace(preset, learning_rate=SPARSE_RATE) if sparse else preset, **asked)
        device, seed = find_device(self.device), self._seed()
        self._encoder = SparseScale.fit(x) if sparse else FeatureEncoder.fit(x)
        encoded = self._encoder.encode(x)
        parts = {"warmup": self.warmup} | parts_that_serve(self.probe) | ({"mixup": 0} if sparse else {})
        kind: type[nn.Module] = SparseMLP if sparse else MLP
        with seeded(Stream.named(seed, "init")):
            network = kind(x.shape[1], len(self.classes_), hidden=preset.hidden, dropout=preset.dropout)
        with threads_for(network):
            result = begin(
                network,
                SparseSamples(encoded) if sparse else encoded,
                labels,
                method=make_method(DEFAULT_METHOD["StepEClassifier"], **self._method_options(), **parts),
                epochs=preset.epochs,
                noise_rate=self.noise_rate,
                trusted=trusted,
                weight=weight,
                probe=self.probe,
                batch_size=preset.batch_size,
                **preset.optimizer_options(device),
                device=device,
                seed=seed,
            ).finish()
        self.network_ = result.model.cpu().double().eval()
        self.estimator_ = None
        self.history_: list[dict[str, Any]] = result.history
        assert isinstance(result.training.method, Eliminating)
        return result.training.method, result.ledger

    def _audit(self, x: Any, labels: npt.NDArray[np.int64], weight: Floats | None, trusted: Any) -> tuple[Audit, Any]:
        """Have clones judge the rows, each those that it was not fitted on; then fit one on what is kept."""
        rounds = ROUNDS if self.rounds is None else self.rounds
        if isinstance(rounds, bool) or not isinstance(rounds, Integral) or rounds < 1:
            raise InputError(f"rounds is {rounds!r}; it must be a whole number, at least 1")
        if self.probe != "auto" and not self.probe.startswith("cross:"):
            raise InputError(
                f"probe is {self.probe!r}; an estimator's rows are judged by others: cross:5, cross:2x2, auto"
            )
        folds = Folds(FOLDS) if self.probe == "auto" else Folds.parse(self.probe)
        if self.probe != "auto" and folds.folds > len(labels):
            raise InputError(f"{len(labels)} rows cannot be split into {folds.folds} folds; give more, or fewer folds")
        blocks = Blocks.of_one_row(len(labels))
        judge = InFolds("estimator", self.estimator, x, blocks, folds.folds, folds.splits, self._seed(), self.n_jobs)
        rho_max = self.rho_max
        if rho_max is None or rho_max == "auto":
            rho_max = CAP_OF_ESTIMATE if self.noise_rate is None else rho_max_from_rate(self.noise_rate)
        found = audit(
            judge,
            labels,
            len(self.classes_),
            evidence=1.0 if self.evidence is None else self.evidence,
            rounds=rounds,
            rho_max=rho_max,
            min_keep=MIN_KEEP if self.min_keep is None else self.min_keep,
            trusted=trusted,
            weights=weight,
        )
        index = np.flatnonzero(found.kept)
        y = self.classes_[labels[index]]
        fitted = seeded_clone(self.estimator, self._seed()) if (y != y[0]).any() else DummyClassifier()
        weighted = {} if weight is None else {"sample_weight": weight[index]}
        return found, fitted.fit(_safe_indexing(x, index), y, **weighted)

    def _report_audit(self, found: Audit, labels: npt.NDArray[np.int64], rows: Any, index: "pd.Index[Any]") -> None:
        dropped = np.stack([~each.kept for each in found.rounds] + [~found.kept])
        guess = np.mean([each.view.probability for each in found.rounds], axis=0)
        past = Past(~found.kept, dropped[1:].mean(0), margins_of(guess, labels), by_judges=True)
        self.history_ = [each.row(number) for number, each in enumerate(found.rounds)]
        self._tabulate(found.belief, labels, past, rows, index)

    def _method_options(self) -> dict[str, Any]:
        rho_max = None if self.rho_max == "auto" and self.noise_rate is not None else self.rho_max
        return {"rho_max": rho_max, "min_keep": self.min_keep or 0.0}

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _report(self, method: Eliminating, ledger: Ledger, rows: npt.NDArray[np.int64], index: "pd.Index[Any]") -> None:
        past = past_of(ledger, method.task, method.warmup_epochs)
        self._tabulate(method.make_belief(ledger), method.task.labels.numpy(), past, rows, index)

    def _tabulate(
        self, belief: Belief, labels: Any, past: Past, rows: npt.NDArray[np.int64], index: "pd.Index[Any]"
    ) -> None:
        import pandas as pd

        self.noise_rate_: Rate | None = belief.found_rate
        index = index[rows]
        labelled = {str(label): label for label in self.classes_.tolist()}
        names = Names([str(name) for name in index], rows.tolist())
        table = issue_table(belief, past, "classes", labels, list(labelled), names)
        for column in ("given_label", "suggested_label"):  # the user's own labels, not their names
            own = [labelled.get(name) for name in table[column]]
            # As objects, or numbers among which one is missing would become fractions.
            table[column] = np.array(own, dtype=object) if None in own else own
        self.samples_ = pd.DataFrame(table, index=index)
        self.issues_ = self.samples_[self.samples_["flagged"]].sort_values("rank")

    def predict(self, X: Any) -> Labels:  # noqa: N803
        """Return the most likely class of each row."""
        check_is_fitted(self)
        if self.estimator_ is not None:
            return np.asarray(self.estimator_.predict(X))
        return self.classes_[self.predict_proba(X).argmax(1)]  # type: ignore[no-any-return]

    @_says("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return a probability per class, in the order of ``classes_``; 0 for one that was dropped as a whole."""
        check_is_fitted(self)
        if self.network_ is None:
            found = np.zeros((_num_samples(X), len(self.classes_)))
            found[:, np.searchsorted(self.classes_, self.estimator_.classes_)] = probabilities(self.estimator_, X)
            return found
        x = validate_data(self, X, reset=False, accept_sparse="csr", dtype=np.float64)
        sparse = isinstance(self._encoder, SparseScale)
        encoded = self._encoder.encode(_as_sparse(x) if sparse else _as_dense(x))
        parts = []
        for start in range(0, _num_samples(x), PREDICTED_AT_ONCE):
            part = encoded[start : start + PREDICTED_AT_ONCE]
            with torch.no_grad():
                logits = self.network_(entries(part, torch.float64) if sparse else torch.from_numpy(part).double())
            parts.append(logits.softmax(1).numpy())
        return np.concatenate(parts)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.estimator is None:
            tags.input_tags.sparse = True
        else:
            tags.input_tags = get_tags(self.estimator).input_tags
        return tags
