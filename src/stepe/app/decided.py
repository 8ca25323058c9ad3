"""Training with what people decided about an earlier run: the labels they chose, which are then trusted."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from stepe.app.run import Run
from stepe.beliefs.names import Names
from stepe.data.source import Integers, Source
from stepe.errors import InputError
from stepe.loop.metrics import Truth
from stepe.review.reviewed import KnownSample, known_samples
from stepe.run.decisions import Action, Decision, Key


@dataclass(frozen=True)
class Review:
    """The decisions on a run up to some entry of its log: what comes later changes nothing for a resumed run."""

    run: Run
    until: int

    @classmethod
    def of(cls, run: Run, until: int | None = None) -> "Review":
        """Take all decisions there are, or those up to an entry."""
        run.check_finished()
        review = cls(run, run.decisions.last if until is None else until)
        if not review.decisions:
            raise InputError(f"nothing was decided about {run.path} yet; do so with `stepe review {run.path}`")
        return review

    @property
    def decisions(self) -> dict[Key, Decision]:
        """What was decided, by sample."""
        return self.run.decisions.current(self.until)

    def hand_on(self, run: Run) -> None:
        """Write the decisions down in a run that was trained with them, once."""
        origin = f"{self.run.path.resolve()}@{self.until}"
        run.decisions.record(Action(f"from {origin}", tuple(self.decisions.values())))

    def carry_out(self, source: Source) -> Source:
        """Give a source the labels that people chose; a sample they were sure about is trusted."""
        places = _Places(source)
        known = known_samples(self.run)
        labels = {"train": source.labels.copy(), "test": source.test_labels.copy()}
        status = {split: ["open"] * len(labels[split]) for split in labels}
        trusted = {split: np.zeros(len(labels[split]), dtype=bool) for split in labels}
        for key, decision in self.decisions.items():
            split, index = places.find(key, known[key], self.run)
            self._check(source, int(labels[split][index]), known[key], decision)
            status[split][index] = decision.verdict
            if decision.label is None:
                continue
            labels[split][index] = source.class_names.index(decision.label)
            trusted[split][index] = True
        truth = _truth(source, labels["train"])
        return replace(
            source,
            labels=labels["train"],
            test_labels=labels["test"],
            trusted=trusted["train"] if source.trusted is None else trusted["train"] | source.trusted,
            test_trusted=trusted["test"] if source.test_trusted is None else trusted["test"] | source.test_trusted,
            names=_named(source.names, source.labels, source.class_names, status["train"]),
            test_names=_named(source.test_names, source.test_labels, source.class_names, status["test"]),
            truth=truth,
            noise_rate=source.noise_rate if truth is None else truth.rate,
        )

    def _check(self, source: Source, label: int, known: KnownSample, decision: Decision) -> None:
        """Refuse a decision on a label that has become another one: it says nothing any more."""
        names = source.class_names
        if names[label] not in (known.given, decision.label):
            planted = " (noise is planted alike by the same --noise and --seed)" if source.truth is not None else ""
            raise InputError(
                f"row {decision.row} (id {known.id!r}) of {source.name} has the label {names[label]!r}, and had "
                f"{known.given!r} when it was reviewed in {self.run.path}{planted}; clean the data that was reviewed"
            )
        if decision.label is not None and decision.label not in names:
            raise InputError(
                f"row {decision.row} (id {known.id!r}) was given the label {decision.label!r} in {self.run.path}, and "
                f"no label of {source.name} is called so; clean the data that was reviewed"
            )


class Place(NamedTuple):
    """The place of a sample in a source."""

    split: str
    position: int


class _Places:
    """The places of the samples of an earlier run: by row and id, whether they are held out now or not."""

    def __init__(self, source: Source):
        self._source = source
        self._names = {"train": source.names, "test": source.test_names}
        # Held-out samples of other data have rows of their own; those of the same data may change sides.
        self._apart = bool(set(source.names.rows) & set(source.test_names.rows))
        self._index = {
            Key(split if self._apart else "", row): Place(split, index)
            for split, names in self._names.items()
            for index, row in enumerate(names.rows)
        }

    def find(self, key: Key, known: KnownSample, run: Run) -> Place:
        """Find where a sample is now."""
        place = self._index.get(Key(key.split if self._apart else "", key.row))
        if place is None or self._names[place.split].ids[place.position] != known.id:
            raise InputError(
                f"row {key.row} (id {known.id!r}), reviewed in {run.path}, is not in {self._source.name} any more, or "
                "has no label there; clean the data that was reviewed"
            )
        return place


def _named(names: Names, labels: Integers, class_names: list[str], status: list[str]) -> Names:
    return replace(names, given=[class_names[label] for label in labels.tolist()], status=status)


def _truth(source: Source, labels: Integers) -> Truth | None:
    """Return what a benchmark knows about the new labels."""
    if source.truth is None or source.truth.labels is None:
        return source.truth
    noisy = np.where(labels != source.labels, labels != source.truth.labels, source.truth.noisy)
    return Truth(noisy, source.truth.labels)


def describe_decisions(decisions: Mapping[Key, Decision]) -> str:
    """Put the decisions into a sentence."""
    count = Counter(decision.wrong for decision in decisions.values())
    unsure = f"; nobody was sure about {count[None]} more" if count[None] else ""
    return f"labels that a review settled are trusted: {count[True]} corrected, {count[False]} confirmed{unsure}"
