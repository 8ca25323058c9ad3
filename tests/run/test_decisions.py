import json
import os
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepe.errors import RunError
from stepe.run.decisions import DATABASE, Action, Decision, Decisions, Key


def decide(row: int, label: str | None = "dog", split: str = "train") -> Decision:
    return Decision(split, row, "unsure" if label is None else "relabelled", label)


def labels(store: Decisions, **until) -> dict[int, str | None]:
    return {key.row: decision.label for key, decision in store.current(**until).items()}


@pytest.fixture
def store(tmp_path) -> Decisions:
    return Decisions(tmp_path)


def test_reading_makes_no_file(store, tmp_path):
    assert store.current() == {}
    assert store.last == 0
    assert store.changed_since(0) == set()
    assert list(tmp_path.iterdir()) == []


def test_a_decision_comes_back_with_its_time(store):
    assert store.record(Action("one", (Decision("train", 7, "accepted", "dog", "sample"),))) == store.last == 1
    (found,) = Decisions(store.path.parent).current().values()
    assert (found.key, found.verdict, found.label, found.origin) == (Key("train", 7), "accepted", "dog", "sample")
    assert found.at.endswith("+00:00")


def test_the_last_word_holds(store):
    store.record(Action("one", (decide(1, "dog"),)), Action("two", (decide(1, None),)))
    assert labels(store) == {1: None}


def test_splits_have_rows_of_their_own(store):
    store.record(Action("one", (decide(1, "dog"), decide(1, "cat", "test"))))
    assert {key: decision.label for key, decision in store.current().items()} == {
        ("train", 1): "dog",
        ("test", 1): "cat",
    }


def test_an_action_that_is_sent_again_counts_once(store):
    action = Action("one", (decide(1), decide(2)))
    store.record(action)
    store.record(action, Action("two", (decide(3),)), action)
    with sqlite3.connect(store.path) as database:
        assert database.execute("SELECT count(*) FROM choices").fetchone() == (3,)
    assert labels(store) == {1: "dog", 2: "dog", 3: "dog"}


def test_undoing_brings_back_what_held_before(store):
    store.record(Action("one", (decide(1, "dog"),)), Action("two", (decide(1, "cat"), decide(2, "cat"))))
    store.record(Action("three", undoes="two"))
    assert labels(store) == {1: "dog"}
    store.record(Action("four", undoes="one"), Action("five", undoes="one"))
    assert labels(store) == {}


def test_an_undo_may_arrive_before_what_it_undoes(store):
    store.record(Action("two", undoes="one"))
    store.record(Action("one", (decide(1),)))
    assert labels(store) == {}


def test_what_held_after_an_earlier_entry_can_be_read(store):
    before = store.record(Action("one", (decide(1, "dog"),)))
    store.record(Action("two", (decide(1, "cat"),)), Action("three", undoes="one"))
    assert labels(store, until=before) == {1: "dog"}
    assert labels(store, until=0) == {}


def test_changes_tell_of_decisions_and_of_undone_ones(store):
    first = store.record(Action("one", (decide(1), decide(2))))
    second = store.record(Action("two", (decide(3),)))
    store.record(Action("three", undoes="one"))
    assert {key.row for key in store.changed_since(0)} == {1, 2, 3}
    assert {key.row for key in store.changed_since(first)} == {1, 2, 3}
    assert {key.row for key in store.changed_since(second)} == {1, 2}


def test_of_an_action_that_cannot_be_written_nothing_is(store):
    twice = Action("two", (decide(1), decide(1)))
    with pytest.raises(RunError, match="cannot be written"):
        store.record(Action("one", (decide(5),)), twice)
    assert store.current() == {}


def test_a_file_that_is_no_database_is_refused(store):
    store.path.write_bytes(b"no database at all, whatever its name says")
    with pytest.raises(RunError, match=rf"{DATABASE} .* is damaged: put back a copy"):
        store.current()


def test_what_cannot_be_opened_is_not_called_damaged(store):
    store.path.mkdir()
    with pytest.raises(RunError, match=rf"{DATABASE} .* check its permissions"):
        store.current()


def test_an_empty_file_holds_no_decisions(store):
    store.path.write_bytes(b"")
    assert store.current() == {}
    assert store.last == 0


def test_decisions_of_a_later_format_are_left_alone(store):
    store.record(Action("one", (decide(1),)))
    with sqlite3.connect(store.path) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(RunError, match="version"):
        store.current()
    with pytest.raises(RunError, match="version"):
        store.record(Action("two", (decide(2),)))


def test_many_writers_lose_nothing(store):
    def write(writer: int) -> None:
        for row in range(10):
            store.record(Action(f"{writer}-{row}", (decide(100 * writer + row),)))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert sorted(labels(store)) == sorted(100 * writer + row for writer in range(8) for row in range(10))
    assert store.last == 80


WRITE_FOR_EVER = """
import sys
from itertools import count
from pathlib import Path
from stepe.run.decisions import Action, Decision, Decisions
store = Decisions(Path(sys.argv[1]))
for row in count():
    store.record(Action(str(row), (Decision("train", row, "kept", "cat"), Decision("test", row, "kept", "cat"))))
    print(row, flush=True)
"""


def test_what_was_confirmed_survives_a_kill(store):
    """Whatever was under way is there in whole or not at all."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITE_FOR_EVER, str(store.path.parent)], stdout=subprocess.PIPE, text=True
    ) as process:
        confirmed = [int(process.stdout.readline()) for _ in range(20)]
        os.kill(process.pid, signal.SIGKILL)
        confirmed += [int(line) for line in process.stdout if line.endswith("\n")]
    found = store.current()
    assert {Key("train", row) for row in confirmed} <= set(found)
    assert sorted(key.row for key in found if key.split == "train") == sorted(
        key.row for key in found if key.split == "test"
    )
    store.record(Action("after", (decide(-1),)))


ACTIONS = st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["decide", "undo"]), st.integers(0, 3)), max_size=15)


@given(ACTIONS)
@settings(max_examples=30)
def test_the_log_agrees_with_replaying_it(tmp_path_factory, steps):
    """Read anew: undone actions struck out, then the last word on each row."""
    store = Decisions(tmp_path_factory.mktemp("run"))
    log: dict[str, tuple[int, str]] = {}
    undone = set()
    for number, kind, row in steps:
        if kind == "decide":
            store.record(Action(f"a{number}", (decide(row, f"a{number}"),)))
            log.setdefault(f"a{number}", (row, f"a{number}"))
        else:
            store.record(Action(f"undo{number}", undoes=f"a{number}"))
            undone.add(f"a{number}")
    expected = dict(value for action, value in log.items() if action not in undone)
    assert labels(store) == expected, json.dumps(steps)
    assert all(store.of(Key("train", row)) == store.current().get(Key("train", row)) for row in range(4))
