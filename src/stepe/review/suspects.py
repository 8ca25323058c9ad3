"""What a review is about: the suspects of a run, what to show of them, and what was decided."""

import shlex
from collections import Counter
from dataclasses import asdict, dataclass
from functools import cached_property
from threading import Lock
from typing import Any

from stepe.errors import InputError
from stepe.review.choices import MOST, likely_classes
from stepe.review.precision import Precision, seconds_each
from stepe.review.sample import sample_order, sampled
from stepe.run.decisions import Action, Decision, Key, Origin, verdict_on
from stepe.run.folder import RunFolder
from stepe.run.record import AUDIT

SPLIT = "train"
"""the samples that are reviewed: those that were learned from"""
ACTIONS, CHOICES = 500, 5_000
"""actions, and choices of one action, that are taken at once"""
LONGEST_ID = 100
MANY = 100
"""changes beyond which reading all decisions takes less"""


@dataclass(frozen=True)
class Suspect:
    """A flagged sample; classes by number, -1 for none."""

    row: int
    index: int
    """position among the samples of the run"""
    id: str
    given: int
    suggested: int
    reason: str


class Suspects:
    """The suspects of a finished run, most suspicious first."""

    def __init__(self, run: RunFolder):
        self.run = run
        self.classes = run.class_names
        self._number = number = {name: i for i, name in enumerate(self.classes)}
        samples = run.samples
        self._table = samples[samples["flagged"] & (samples["split"] == SPLIT)].sort_values("rank")
        if self._table.empty:
            raise InputError(f"no label of {run.path} is flagged, so there is nothing to review")
        self._suspects = {
            int(row): Suspect(int(row), int(index), key, number[given], number.get(suggested, -1), reason)
            for index, row, key, given, suggested, reason in zip(
                self._table.index,
                *(self._table[name] for name in ("row", "id", "given_label", "suggested_label", "reason")),
                strict=True,
            )
        }

        self._likely = self._find_likely()
        self._lock = Lock()
        self._seen = 0
        self._made: dict[int, Decision] = {}

    def __len__(self) -> int:
        return len(self._suspects)

    @cached_property
    def sample_order(self) -> dict[int, int]:
        """Each suspect's place in a random order, the same whenever it is asked for: its first are a random sample."""
        return sample_order(self.run, self._suspects)

    def describe(self) -> dict[str, Any]:
        """Describe all suspects, a column each: what the page filters and orders by."""
        suspects = self._suspects.values()
        found = {
            "run": self.run.digest,
            "data": self.run.request.name,
            "command": self._command(),
            "classes": self.classes,
            "row": [suspect.row for suspect in suspects],
            "given": [suspect.given for suspect in suspects],
            "suggested": [suspect.suggested for suspect in suspects],
            "suspicion": [None if value != value else value for value in self._table["suspicion"].tolist()],
            "sample": [self.sample_order[suspect.row] for suspect in suspects],
        }
        if "group" in self._table:
            found["group"] = self._table["group"].fillna("").astype(str).tolist()
        return found

    def _command(self) -> str:
        """Return what to type to train with the decisions."""
        return shlex.join(["stepe", "clean", self.run.request.data or "DATA", "--decisions", str(self.run.path)])

    # What to show

    def details(self, rows: list[int]) -> dict[str, Any]:
        """Return what people need to judge some suspects; rows that are none are left out."""
        found = {row: self._detail(self._suspects[row]) for row in rows if row in self._suspects}
        examples = (row for detail in found.values() for rows_of in detail["examples"].values() for row in rows_of)
        shown = {*found, *examples}
        return {"details": found, "previews": {row: self._preview(row) for row in shown}}

    def _detail(self, suspect: Suspect) -> dict[str, Any]:
        predictions = self._predictions(suspect)
        agreeing, probes = predictions[suspect.suggested], predictions.total()
        unit = "rounds" if self.run.method == AUDIT else "epochs"
        often = f", as in {agreeing} of {probes} {unit}" if suspect.suggested >= 0 and agreeing and probes > 1 else ""
        classes = {suspect.given, suspect.suggested} - {-1}
        return {
            "id": suspect.id,
            "reason": f"{suspect.reason}{often}",
            "likely": self._likely[suspect.row],
            "examples": {number: self.run.examples(self.classes[number]) for number in classes},
        }

    def _preview(self, row: int) -> dict[str, Any]:
        preview = self.run.previews.get(row)
        if preview is None:
            return {}
        shown = {"picture": preview.picture is not None, "text": preview.text, "cells": preview.cells}
        return {name: value for name, value in shown.items() if value}

    def picture(self, row: int) -> bytes | None:
        """Return a sample's picture, if it has one."""
        preview = self.run.previews.get(row)
        return None if preview is None else preview.picture

    def _find_likely(self) -> dict[int, list[int]]:
        """Choose the classes offered first: all where they are few, in their order, so that keys keep their meaning."""
        if len(self.classes) <= MOST:
            return {row: list(range(len(self.classes))) for row in self._suspects}
        found = likely_classes(self.run, list(self._suspects))
        return {row: [self._number[name] for name in names] for row, names in zip(self._suspects, found, strict=True)}

    def _predictions(self, suspect: Suspect) -> Counter[int]:
        """Count how often the model took a sample for each class."""
        said = [entry["prediction"] for entry in self.run.trace(suspect.index)[:-1]]
        return Counter(self._number[name] for name in said if name in self._number)

    # What was decided

    def state(self, since: int | None = None) -> dict[str, Any]:
        """Return what holds now: all decisions, or those changed after an entry of the log; and how far people came."""
        with self._lock:
            self._catch_up()
            made = self._made
            rows = made if since is None else [row for row in self._changed_since(since) if row in self._suspects]
            decided: dict[int, tuple[str, int | None] | None] = dict.fromkeys(rows)  # None: taken back
            for row in rows:
                if (decision := made.get(row)) is not None:
                    decided[row] = (decision.verdict, self._number.get(decision.label or ""))
            return {"entry": self._seen, "decided": decided, "progress": self._progress(made)}

    def _catch_up(self) -> None:
        """Read what was decided since the last time; by other processes too."""
        store = self.run.decisions
        last = store.last  # read first: what is added meanwhile is read next time
        if last < self._seen:  # somebody took the log away
            self._made, self._seen = {}, 0
        changed = self._changed_since(self._seen) if last > self._seen else []
        if len(changed) > MANY:
            self._made = {key.row: made for key, made in store.current().items() if key.split == SPLIT}
        for row in changed if len(changed) <= MANY else ():
            if (decision := store.of(Key(SPLIT, row))) is not None:
                self._made[row] = decision
            else:
                self._made.pop(row, None)
        self._seen = last

    def _changed_since(self, entry: int) -> list[int]:
        return [key.row for key in self.run.decisions.changed_since(entry) if key.split == SPLIT]

    def _progress(self, decisions: dict[int, Decision]) -> dict[str, Any]:
        """Count how far people came, how fast they are, and how many of the flags were right."""
        made = {row: each for row, each in decisions.items() if row in self._suspects}
        return {
            "decided": len(made),
            "seconds_each": seconds_each([each.at for each in made.values()]),
            "precision": asdict(Precision.of(each.wrong for each in made.values())),
            "sample": asdict(Precision.of(each.wrong for each in sampled(self.sample_order, made).values())),
        }

    def record(self, actions: Any) -> None:
        """Save what the page sends; refuse, as a whole, what makes no sense."""
        if not isinstance(actions, list) or not 0 < len(actions) <= ACTIONS:
            raise InputError(f"send a list of 1 to {ACTIONS} actions")
        self.run.decisions.record(*(self._action(action) for action in actions))

    def _action(self, action: Any) -> Action:
        match action:
            case {"id": str(name), "undoes": str(undone)} if name and len(name) <= LONGEST_ID >= len(undone):
                return Action(name, undoes=undone)
            case {"id": str(name), "origin": "ranked" | "sample" as origin, "choices": [*choices]} if (
                name and len(name) <= LONGEST_ID and 0 < len(choices) <= CHOICES
            ):
                decisions = {made.key: made for made in (self._decision(choice, origin) for choice in choices)}
                return Action(name, tuple(decisions.values()))
        raise InputError("an action has an id and either what it undoes, or an origin and choices")

    def _decision(self, choice: Any, origin: Origin) -> Decision:
        match choice:
            case {"row": int(row), "label": None | int() as number} if row in self._suspects and (
                number is None or 0 <= number < len(self.classes)
            ):
                suspect = self._suspects[row]
                label = None if number is None else self.classes[number]
                suggested = "" if suspect.suggested < 0 else self.classes[suspect.suggested]
                verdict = verdict_on(label, given=self.classes[suspect.given], suggested=suggested)
                return Decision(SPLIT, row, verdict, label, origin)
        raise InputError("a choice has the row of a suspect and the number of a class, or null")
