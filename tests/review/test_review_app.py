"""What the page asks for, and what it sends."""

import json

import pytest

from stepe import Run
from stepe.run.decisions import Action, Decision


def decide(*choices, name="one", origin="ranked", since=0):
    return {
        "actions": [
            {"id": name, "origin": origin, "choices": [{"row": row, "label": label} for row, label in choices]}
        ],
        "since": since,
    }


def test_the_page_and_its_parts_are_served(ask):
    page = ask("/").body.decode()
    for name in ("theme.css", "review.css", "review.js", "icon.svg"):
        assert f"/static/{name}" in page
        assert ask(f"/static/{name}").status == 200
    assert "http://" not in page
    assert "https://" not in page
    assert ask("/static/review.js").headers["content-type"].startswith("text/javascript")


def test_all_suspects_come_in_columns_by_rank(ask, run):
    found = ask("/api/suspects").json
    issues = run.issues
    assert found["row"] == issues["row"].tolist()
    assert [found["classes"][number] for number in found["given"]] == issues["given_label"].tolist()
    assert [found["classes"][number] for number in found["suggested"]] == issues["suggested_label"].tolist()
    assert sorted(found["sample"]) == list(range(len(issues)))
    assert found["decided"] == {}
    assert found["entry"] == 0


def test_details_come_with_what_to_look_at(ask, run):
    found = ask("/api/details", query="rows=0,3,9999").json
    assert set(found["details"]) == {"0", "3"}
    detail = found["details"]["0"]
    assert detail["id"] == "item-0"
    assert detail["reason"].startswith("dropped in 90%")
    assert detail["likely"][0] == 1
    assert len(detail["likely"]) <= 9
    examples = {row for rows in detail["examples"].values() for row in rows}
    assert set(detail["examples"]) == {"0", "1"}
    assert {str(row) for row in examples} <= set(found["previews"])
    assert found["previews"]["0"] == {"picture": True}
    picture = ask("/api/picture/0")
    assert picture.body == run.previews[0].picture
    assert picture.headers["content-type"] == "image/png"


def test_a_decision_is_saved_and_answered_with_what_changed(ask, run):
    answer = ask("/api/actions", decide((0, 1), (3, 0), (6, 2), (9, None))).json
    assert answer["decided"] == {"0": ["accepted", 1], "3": ["kept", 0], "6": ["relabelled", 2], "9": ["unsure", None]}
    assert answer["progress"]["decided"] == 4
    assert answer["progress"]["precision"] | {"low": 0, "high": 0} == {"wrong": 2, "judged": 3, "low": 0, "high": 0}
    assert {key.row: made.verdict for key, made in run.decisions.current().items()} == {
        0: "accepted",
        3: "kept",
        6: "relabelled",
        9: "unsure",
    }


def test_sending_again_counts_once_and_an_undo_takes_all_of_it_back(ask, run):
    sent = decide((0, 1), (3, 1))
    first = ask("/api/actions", sent).json
    assert ask("/api/actions", sent).json["entry"] == first["entry"]
    undone = ask("/api/actions", {"actions": [{"id": "two", "undoes": "one"}], "since": first["entry"]}).json
    assert undone["decided"] == {"0": None, "3": None}
    assert run.decisions.current() == {}


def test_others_hear_of_it(ask, run):
    before = ask("/api/suspects").json["entry"]
    run.decisions.record(Action("elsewhere", (Decision("train", 3, "kept", "cat"), Decision("test", 5, "kept", "cat"))))
    found = ask("/api/changes", query=f"since={before}").json
    assert found["decided"] == {"3": ["kept", 0]}
    assert ask("/api/changes", query=f"since={found['entry']}").json["decided"] == {}


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"actions": []},
        {"actions": "all"},
        {"actions": [{"id": "one"}]},
        {"actions": [{"id": "", "undoes": "x"}]},
        {"actions": [{"id": "x" * 101, "undoes": "x"}]},
        {"actions": [{"id": "one", "origin": "file", "choices": [{"row": 0, "label": 1}]}]},
        {"actions": [{"id": "one", "origin": "ranked", "choices": []}]},
        {"actions": [{"id": "one", "origin": "ranked", "choices": [{"row": 100, "label": 1}]}]},
        {"actions": [{"id": "one", "origin": "ranked", "choices": [{"row": 0, "label": 99}]}]},
        {"actions": [{"id": "one", "origin": "ranked", "choices": [{"row": 0, "label": -1}]}]},
        {"actions": [{"id": "one", "origin": "ranked", "choices": [{"row": 0, "label": "dog"}]}]},
        {"actions": [{"id": "one", "origin": "ranked", "choices": [{"row": "0", "label": 1}]}]},
        {"actions": [{"id": "one\ud800", "undoes": "x"}]},
        {"actions": [{"id": "one", "undoes": "x\ud800"}]},
        [],
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"actions": [{"id": "right", "origin": "ranked", "choices": [{"row": 3, "label": 1}]}], "since": "soon"}',
    ],
)
def test_what_makes_no_sense_is_refused_as_a_whole(ask, run, sent):
    if isinstance(sent, dict) and sent.get("actions"):
        right = {"id": "right", "origin": "ranked", "choices": [{"row": 3, "label": 1}]}
        sent = {"actions": [right, *sent["actions"]], "since": 0}
    answer = ask("/api/actions", sent)
    assert answer.status == 400
    assert answer.json["error"]
    assert run.decisions.current() == {}


@pytest.mark.parametrize("query", ["", "since=", "since=-1", "since=one", "since=" + "9" * 30])
def test_numbers_must_be_numbers(ask, query):
    assert ask("/api/changes", query=query).status == 400


def test_decisions_are_exported_with_what_was_decided_by_then(ask, run):
    ask("/api/actions", decide((0, 1)))
    answer = ask("/api/export", {"what": "reviewed"}).json
    assert answer["path"] == str(run.path / "reviewed.csv")
    download = ask(answer["address"])
    assert download.headers["content-disposition"] == 'attachment; filename="reviewed.csv"'
    assert download.body == (run.path / "reviewed.csv").read_bytes()
    assert b"0,item-0,train,cat,dog,accepted,dog\r\n" in download.body


@pytest.mark.parametrize("mode", ["mark", "drop", "relabel"])
def test_cleaned_data_is_exported(ask, run, mode):
    ask("/api/actions", decide((0, 2)))
    answer = ask("/api/export", {"what": "cleaned", "mode": mode}).json
    lines = ask(answer["address"]).body.decode().splitlines()
    assert lines[1].startswith("item-0,cow")


@pytest.mark.parametrize("asked", [{"what": "model"}, {"what": "cleaned", "mode": "burn"}, {"what": "cleaned"}])
def test_nothing_else_is_exported(ask, asked):
    assert ask("/api/export", asked).status == 400


def test_data_that_is_gone_is_said_to_be(ask, run, tmp_path):
    config = (run.path / "config.json").read_text().replace('"data": null', f'"data": "{tmp_path}/gone.csv"')
    (run.path / "config.json").write_text(config)
    answer = ask("/api/export", {"what": "cleaned", "mode": "mark"})
    assert answer.status == 500
    assert "is gone; put it back" in answer.json["error"]
    assert Run(run.path).decisions.current() == {}


def test_the_input_of_a_run_made_elsewhere_is_read_only_if_that_was_agreed_to(ask, run, tmp_path):
    (tmp_path / "table.csv").write_text("label\n")
    config = json.loads((run.path / "config.json").read_text())
    config["request"]["data"] = str(tmp_path / "table.csv")
    (run.path / "config.json").write_text(json.dumps(config))
    refused = ask("/api/export", {"what": "cleaned", "mode": "mark"})
    assert refused.status == 500
    assert "add --trust-paths" in refused.json["error"]
    assert not (run.path / "cleaned.csv").exists()
