"""``stepe.clean(..., decisions=RUN)``: training again with what people decided."""

import shutil

import numpy as np
import pandas as pd
import pytest

import stepe
from interrupted import StopHereError, Stopper
from stepe import InputError, Run, RunError
from stepe.app.resume import resume
from stepe.review.cleaned import write_cleaned
from stepe.review.suspects import Suspects
from stepe.run.decisions import Action, Decision, Key

pytestmark = pytest.mark.usefixtures("_elsewhere")
CLASSES = ("pet", "food", "car")


@pytest.fixture
def data(tmp_path) -> str:
    """Points of three kinds; every tenth has the label of another."""
    draw = np.random.default_rng(0)
    truth = np.arange(90) % 3
    wrong = np.arange(90) % 10 == 3
    x = 4 * np.eye(3)[truth] + draw.normal(size=(90, 3))
    frame = pd.DataFrame(x.round(3), columns=["a", "b", "c"])
    frame["label"] = np.array(CLASSES)[np.where(wrong, (truth + 1) % 3, truth)]
    frame.to_csv(tmp_path / "data.csv", index=False)
    return str(tmp_path / "data.csv")


def clean(data, **options) -> Run:
    settings = {"features": "a,b,c", "label": "label", "rho_max": 0.2, "epochs": 3, "probe": "in-sample"}
    return stepe.clean(data, device="cpu", **(settings | options))


def decide(run: Run, decisions: dict[int, str | None], name: str = "one") -> None:
    samples = run.samples.set_index("row")
    made = []
    for row, label in decisions.items():
        given = samples["given_label"][row]
        verdict = "unsure" if label is None else "kept" if label == given else "relabelled"
        made.append(Decision(samples["split"][row], row, verdict, label))
    run.decisions.record(Action(name, tuple(made)))


def _first(rows: list[int], samples: pd.DataFrame, label: str, count: int = 1) -> list[int]:
    return [row for row in rows if samples["given_label"][row] == label][:count]


@pytest.fixture
def reviewed(data) -> Run:
    """Wrong labels put right, one held out among them, a right one confirmed, one nobody is sure about."""
    run = clean(data)
    samples = run.samples.set_index("row")
    held_out = next(row for row in samples.index if samples["split"][row] == "test")
    training = [row for row in samples.index if samples["split"][row] == "train" and row > 50]
    (pet,), (confirmed, unclear) = _first(training, samples, "pet"), _first(training, samples, "food", 2)
    decide(run, {pet: "car", confirmed: "food", unclear: None})
    decide(run, {held_out: "car"}, "two")
    return Run(run.path)


def rows_by(run: Run, verdict: str) -> list[int]:
    return [key.row for key, made in run.decisions.current().items() if made.verdict == verdict]


@pytest.fixture
def trained_with(monkeypatch):
    """What training is handed: labels and trust, by row."""
    seen = {}
    from stepe.app import work

    original = work._train

    def train(request, source, *args, **options):
        for split, names, labels in (
            ("train", source.names, source.labels),
            ("test", source.test_names, source.test_labels),
        ):
            for i, row in enumerate(names.rows):
                trust = split == "train" and source.trusted is not None and bool(source.trusted[i])
                seen[row] = (source.class_names[int(labels[i])], trust)
        return original(request, source, *args, **options)

    monkeypatch.setattr(work, "_train", train)
    return seen


def test_chosen_labels_are_trained_on_and_trusted(reviewed, data, trained_with):
    said = []
    run = clean(data, decisions=reviewed, say=said.append)
    given = run.samples.set_index("row")["given_label"]
    assert "labels that a review settled are trusted: 2 corrected, 1 confirmed; nobody was sure about 1 more" in said
    for key, made in reviewed.decisions.current().items():
        assert trained_with[key.row][0] == (made.label or given[key.row])
        assert trained_with[key.row][1] == (key.split == "train" and made.label is not None)
    untouched = set(trained_with) - {key.row for key in reviewed.decisions.current()}
    assert all(trained_with[row] == (given[row], False) for row in untouched)


def test_the_new_run_takes_the_decisions_over_and_cleans_with_them(reviewed, data):
    run = clean(data, decisions=str(reviewed.path))
    assert {key: made.label for key, made in run.decisions.current().items()} == {
        key: made.label for key, made in reviewed.decisions.current().items()
    }
    before, after = (each.samples.set_index("row").sort_index() for each in (reviewed, run))
    assert before["given_label"].tolist() == after["given_label"].tolist()
    assert before["status"].tolist() == after["status"].tolist()
    assert not after["flagged"][rows_by(run, "kept") + rows_by(run, "relabelled")].any()
    cleaned = pd.read_csv(write_cleaned(run))
    assert set(cleaned["label"][rows_by(run, "relabelled")]) == {"car"}
    # A row that says one thing and is another shows nobody what that thing looks like.
    shown = {row for name in CLASSES for row in run.examples(name)}
    assert not shown & set(rows_by(run, "relabelled"))


def test_decisions_add_up_over_runs(reviewed, data):
    second = clean(data, decisions=reviewed)
    other = next(row for row in second.samples["row"] if Key("train", row) not in second.decisions.current())
    decide(second, {other: "food"}, "more")
    third = clean(data, decisions=second)
    assert set(third.decisions.current()) == {*reviewed.decisions.current(), *second.decisions.current()}
    assert len(third.decisions.current()) == 5


def test_the_cleaned_data_itself_may_be_trained_on(reviewed, trained_with):
    cleaned = write_cleaned(reviewed)
    clean(str(cleaned), decisions=reviewed)
    assert all(trained_with[row][0] == "car" for row in rows_by(reviewed, "relabelled"))


def test_held_out_rows_may_change_sides(reviewed, data, trained_with):
    clean(data, decisions=reviewed, holdout=0)
    assert {trained_with[row] for row in rows_by(reviewed, "relabelled")} == {("car", True)}


def test_held_out_data_of_its_own_has_its_own_rows(data, tmp_path, trained_with):
    other = shutil.copy(data, tmp_path / "test.csv")
    run = clean(data, test=other)
    run.decisions.record(Action("one", (Decision("test", 0, "relabelled", "car"),)))
    again = clean(data, test=other, decisions=run)
    samples = again.samples[again.samples["row"] == 0].set_index("split")
    assert samples["status"].to_dict() == {"train": "open", "test": "relabelled"}


def test_planted_noise_is_reviewed_too():
    run = stepe.clean("digits", epochs=2, compare=False, device="cpu")
    noisy = run.summary.noise.noisy
    truth = stepe.clean("digits", noise="none", epochs=1, compare=False, device="cpu").samples
    right = dict(zip(truth["row"], truth["given_label"], strict=True))
    wrong = [row for row, given in run.issues[["row", "given_label"]].to_numpy() if right[row] != given][:20]
    decide(run, {row: right[row] for row in wrong})
    again = stepe.clean("digits", epochs=2, compare=False, device="cpu", decisions=run)
    assert again.summary.noise.noisy == noisy - len(wrong)
    with pytest.raises(InputError, match="same --noise and --seed"):
        stepe.clean("digits", epochs=2, compare=False, device="cpu", decisions=run, seed=1)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda frame, row: frame.assign(label=frame["label"].where(frame.index != row, "food")), "and had '.*' when"),
        (lambda frame, row: frame.iloc[:row], "is not in other any more"),
        (lambda frame, row: frame.assign(label=frame["label"].where(frame.index != row, "")), "has no label there"),
        (lambda frame, row: frame.assign(key=[f"k{i}" for i in frame.index]), "is not in other any more"),
        (lambda frame, row: frame.assign(label=frame["label"].replace("car", "bus")), "label"),
    ],
)
def test_data_that_changed_is_refused_before_anything_is_trained(reviewed, data, tmp_path, change, complaint):
    given = reviewed.samples.set_index("row")["given_label"]
    row = next(row for row in rows_by(reviewed, "relabelled") if given[row] == "pet" and row > 50)
    frame = change(pd.read_csv(data), row)
    frame.to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(InputError, match=complaint):
        clean(str(tmp_path / "other.csv"), decisions=reviewed, id="key" if "key" in frame else None, out="new")
    assert not (tmp_path / "new").exists()


def test_without_decisions_there_is_nothing_to_train_with(data):
    run = clean(data)
    with pytest.raises(InputError, match="stepe review"):
        clean(data, decisions=run)


def test_a_resumed_run_goes_by_what_had_been_decided_when_it_began(reviewed, data, tmp_path):
    whole = clean(data, decisions=reviewed, out="whole")
    with pytest.raises(StopHereError):
        clean(data, decisions=reviewed, out="stopped", follow=lambda *_: Stopper(1))
    held = reviewed.decisions.current()
    decide(reviewed, dict.fromkeys(rows_by(reviewed, "relabelled"), "food"), "later")
    with pytest.raises(RunError, match="decisions was"):
        clean(data, decisions=whole, out="stopped", resume=True)
    run = resume("stopped", decisions=reviewed.path)
    assert run.decisions.current() == held
    assert (run.path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()


# ---------------------------------------------------------------------------------------------------------------
# By judges


class _Stop:
    """Ends an audit after its first round."""

    def round_ended(self, number: int, most: int, rate: float) -> None:
        raise StopHereError


@pytest.fixture
def audited(data) -> Run:
    """An audit of which a suspect was put right, another confirmed, and a held-out one confirmed as well."""
    run = clean(data, epochs=None, probe=None, rho_max=None, holdout=0.2)
    suspects = Suspects(run)
    told = suspects.describe()
    choices = [
        {"row": told["row"][0], "label": told["suggested"][0]},
        {"row": told["row"][1], "label": told["given"][1]},
    ]
    suspects.record([{"id": "one", "origin": "ranked", "choices": choices}])
    held_out = run.issues[run.issues["split"] == "test"].iloc[0]
    decide(run, {int(held_out["row"]): held_out["given_label"]}, "two")
    return Run(run.path)


def test_judges_trust_what_was_settled_and_hand_it_on(audited, data):
    said = []
    run = clean(data, epochs=None, probe=None, rho_max=None, holdout=0.2, decisions=audited, say=said.append)
    assert run.method == audited.method == "audit"
    assert said == ["labels that a review settled are trusted: 1 corrected, 2 confirmed"]
    assert run.decisions.current() == audited.decisions.current()
    before, after = (each.samples.set_index("row").sort_index() for each in (audited, run))
    settled = [key.row for key in run.decisions.current()]
    assert before["flagged"][settled].all()
    assert {*before["split"][settled]} == {"train", "test"}
    assert not after["flagged"][settled].any()
    assert (after["suspicion"][settled] == 0).all()
    assert after["given_label"].tolist() == before["given_label"].tolist()
    assert after["status"].tolist() == before["status"].tolist()
    assert not set(Suspects(run).describe()["row"]) & set(settled)


def test_the_cleaned_data_of_an_audit_have_what_was_settled(audited, data):
    run = clean(data, epochs=None, probe=None, rho_max=None, holdout=0.2, decisions=audited)
    cleaned, given = pd.read_csv(write_cleaned(run)), run.samples.set_index("row")["given_label"]
    for key, made in run.decisions.current().items():
        assert cleaned["label"][key.row] == made.label
        assert not cleaned["stepe_flagged"][key.row]
    assert (cleaned["label"] != given.sort_index()).sum() == 1


def test_an_interrupted_audit_goes_by_what_had_been_decided_when_it_began(audited, data):
    options = {"epochs": None, "probe": None, "rho_max": None, "holdout": 0.2}
    whole = clean(data, decisions=audited, out="whole", **options)
    with pytest.raises(StopHereError):
        clean(data, decisions=audited, out="stopped", follow=lambda *_: _Stop(), **options)
    held = audited.decisions.current()
    decide(audited, dict.fromkeys([key.row for key in held], "food"), "later")
    run = resume("stopped")
    assert run.decisions.current() == held
    pd.testing.assert_frame_equal(run.samples, whole.samples)


def test_a_review_of_an_audit_says_how_many_rounds_agree(audited):
    suspects = Suspects(audited)
    found = suspects.details(suspects.describe()["row"])["details"]
    rounds = audited.summary.epochs
    assert any(detail["reason"].endswith(f", as in {rounds} of {rounds} rounds") for detail in found.values())
    assert not any("epoch" in detail["reason"] for detail in found.values())
