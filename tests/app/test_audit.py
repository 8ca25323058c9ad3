"""``stepe clean`` by judges: every row judged in seconds, without torch."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import stepe
from stepe.app.audit import told_of_little
from stepe.app.audit_folder import AuditFolder
from stepe.errors import InputError
from stepe.loop.metrics import auroc
from stepe.run.trace import Trace

BLOCKED = """
import sys
class WithoutTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("torch is not there")
sys.meta_path.insert(0, WithoutTorch())
from stepe.cli.app import main
sys.argv = ["stepe", *sys.argv[1:]]
main()
"""
"""the command line where torch cannot be imported"""


def rows(n: int = 300, seed: int = 0, classes: int = 3):
    """Numbers with a category and gaps, labels of which a tenth is wrong, and which are."""
    random = np.random.default_rng(seed)
    truth = random.integers(0, classes, n)
    columns = random.normal(size=(n, 4))
    columns[np.arange(n), truth] += 4
    labels = np.where(random.random(n) < 0.1, (truth + 1) % classes, truth)
    frame = pd.DataFrame(columns, columns=list("abcd"))
    frame["colour"] = np.where(random.random(n) < 0.5, "red", "blue")
    frame.loc[::20, "a"] = np.nan
    names = np.array(["cat", "dog", "owl"])
    return frame.assign(kind=names[labels]), labels != truth


@pytest.fixture(scope="module")
def table():
    return rows()


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    return stepe.clean(table[0], label="kind", out=tmp_path_factory.mktemp("runs") / "run")


def test_every_row_is_judged_on_one_scale_and_can_be_flagged(run, table):
    _, wrong = table
    samples = run.samples.sort_values("row")
    assert len(samples) == 300
    assert set(samples["split"]) == {"train"}
    assert auroc(samples["suspicion"], wrong) > 0.97
    assert samples["flagged"].tolist() == (samples["suspicion"] > 0.5).tolist()
    assert run.summary.test_accuracy is None
    assert 0.8 < run.summary.agreement < 1


def test_the_run_tells_who_judged_and_how_sure_that_is(run):
    assert list(run.summary.panel) == sorted(run.summary.panel, key=run.summary.panel.get, reverse=True)
    assert sum(run.summary.panel.values()) == pytest.approx(1)
    assert run.request.judges == ("kernel", "ranks", "forest")
    assert run.belief.evidence == 0.85
    assert run.belief.rate.low < 0.1 < run.belief.rate.high
    assert [row["epoch"] for row in run.history] == list(range(run.summary.epochs))


def test_the_reason_says_what_it_looks_like_and_to_whom(run):
    first = run.issues.iloc[0]
    assert first["reason"].startswith(f"looks like {first['suggested_label']} to judges that never saw this label (")


def test_the_model_handed_over_predicts_new_rows(run):
    new, _ = rows(seed=1)
    clean = new.drop(columns="kind")
    found = run.predict(clean)
    expected, _ = rows(seed=1)
    assert (found["predicted_label"].to_numpy() == expected["kind"].to_numpy()).mean() > 0.8
    assert found["confidence"].between(0, 1).all()


def test_a_damaged_model_is_refused_by_name(run, table, tmp_path):
    again = stepe.clean(table[0], label="kind", out=tmp_path / "run", judges="linear")
    (again.path / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
    with pytest.raises(stepe.errors.RunError, match=r"its model\.safetensors or preprocessing\.json is damaged"):
        again.predict(table[0].drop(columns="kind"))


@pytest.mark.parametrize("kind", ["table", "text", "features"])
def test_a_command_by_judges_needs_no_torch(kind, table, tmp_path):
    frame, _ = table
    data, options = tmp_path / "data.csv", ["--label", "kind"]
    if kind == "text":
        frame = pd.DataFrame({"text": frame["kind"] + " " + frame["colour"] + " tree", "kind": frame["kind"]})
        options += ["--text", "text"]
    if kind == "features":
        options += ["--features", "b,c,d"]
    frame.to_csv(data, index=False)
    command = [sys.executable, "-c", BLOCKED]
    done = subprocess.run(
        [*command, "clean", str(data), *options, "--out", str(tmp_path / "run"), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["summary"]["samples"] == 300
    predicted = subprocess.run(
        [*command, "predict", str(tmp_path / "run"), str(data)], capture_output=True, text=True, check=False
    )
    assert predicted.returncode == 0, predicted.stderr
    assert len(predicted.stdout.splitlines()) == 301


class Stop:
    """Interrupts an audit after some rounds."""

    def __init__(self, after: int):
        self.after = after

    def __call__(self, method, position, total):
        return self

    def round_ended(self, number, most, rate):
        if number == self.after:
            raise KeyboardInterrupt


@pytest.mark.parametrize("after", [1, 2])
def test_an_interrupted_audit_ends_in_the_same_bits(run, table, tmp_path, after):
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt) as interrupt:
        stepe.clean(table[0], label="kind", out=out, follow=Stop(after))
    assert "stepe clean --resume" in interrupt.value.__notes__[0]
    again = stepe.clean(table[0], label="kind", out=out, resume=True)
    np.testing.assert_array_equal(again.belief.p_right, run.belief.p_right)
    assert again.history == run.history
    pd.testing.assert_frame_equal(again.samples, run.samples)
    assert (again.path / "trace.bin").read_bytes() == (run.path / "trace.bin").read_bytes()
    assert not (again.path / "checkpoint").exists()


def test_other_data_are_not_taken_for_those_of_an_interrupted_audit(table, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        stepe.clean(table[0], label="kind", out=tmp_path / "run", follow=Stop(1))
    other, _ = rows(seed=5)
    with pytest.raises(stepe.errors.RunError, match="another configuration: inputs was"):
        stepe.clean(other, label="kind", out=tmp_path / "run", resume=True)


def test_held_out_labels_are_judged_and_teach_nothing(table, tmp_path):
    frame, wrong = table
    held_out = stepe.clean(frame, label="kind", out=tmp_path / "one", holdout=0.3)
    samples = held_out.samples
    tested = samples[samples["split"] == "test"]
    assert len(tested) == held_out.summary.held_out == 90
    assert auroc(tested["suspicion"], wrong[tested["row"]]) > 0.95
    assert tested["flagged"].any()
    assert held_out.summary.held_out_flagged == tested["flagged"].sum()
    assert 0.7 < held_out.summary.test_accuracy < 1

    turned = frame.copy()
    turned.loc[tested["row"], "kind"] = np.roll(frame["kind"][tested["row"]], 1)
    again = stepe.clean(
        turned.iloc[samples[samples["split"] == "train"]["row"]],
        label="kind",
        out=tmp_path / "two",
        test=_written(turned.iloc[tested["row"]], tmp_path),
    )
    assert [row["judge"] for row in again.history] == [row["judge"] for row in held_out.history]
    np.testing.assert_allclose(again.belief.p_right, held_out.belief.p_right)


def _written(frame, folder):
    frame.to_csv(folder / "test.csv", index=False)
    return folder / "test.csv"


def test_truth_changes_nothing(tmp_path):
    planted = stepe.clean("digits", noise="symmetric:0.2", out=tmp_path / "planted")
    assert planted.summary.noise.auroc > 0.99
    samples = planted.samples[planted.samples["split"] == "train"].sort_values("row")
    from sklearn.datasets import load_digits

    features = load_digits().data[samples["row"]] / 16
    alone = stepe.clean(
        (features, samples["given_label"].astype(int).to_numpy()), out=tmp_path / "alone", judges="kernel"
    )
    by_kernel = stepe.clean("digits", noise="symmetric:0.2", out=tmp_path / "kernel", judges="kernel")
    assert alone.summary.noise is None
    assert by_kernel.summary.noise is not None
    correlation = np.corrcoef(alone.belief.p_right, by_kernel.belief.p_right)[0, 1]
    assert correlation > 0.95


def test_a_person_decides_how_many_are_flagged(run, table, tmp_path):
    few = stepe.clean(table[0], label="kind", out=tmp_path / "few", top=5)
    assert few.issues["row"].tolist() == run.issues["row"].tolist()[:5]
    sure = stepe.clean(table[0], label="kind", out=tmp_path / "sure", min_suspicion=0.9)
    assert sure.issues["suspicion"].min() >= 0.9
    assert len(sure.issues) == (run.samples["suspicion"] >= 0.9).sum()


def test_rows_without_a_label_are_predicted(table, tmp_path):
    frame = table[0].copy()
    missing = frame.index[:30]
    frame.loc[missing, "kind"] = ""
    found = stepe.clean(frame, label="kind", out=tmp_path / "run")
    predicted = found.samples[found.samples["split"] == "unlabelled"].set_index("row").loc[missing]
    assert (predicted["suggested_label"].to_numpy() == table[0]["kind"][:30].to_numpy()).mean() > 0.8
    assert predicted["suspicion"].isna().all()
    assert found.summary.unlabelled == 30


def test_what_was_checked_is_never_flagged(run, table, tmp_path):
    doubted = run.issues["row"].to_numpy()
    frame = table[0].assign(checked=False)
    frame.loc[doubted[:5], "checked"] = True
    found = stepe.clean(frame, label="kind", trusted="checked", out=tmp_path / "run")
    assert not set(doubted[:5]) & set(found.issues["row"])


def test_what_was_checked_is_never_flagged_held_out_or_asked_for_by_number(table, tmp_path):
    frame = table[0].assign(checked=np.arange(300) % 2 == 0)
    found = stepe.clean(frame, label="kind", trusted="checked", holdout=0.3, top=300, out=tmp_path / "run")
    checked = found.samples["row"] % 2 == 0
    assert {*found.samples[checked]["split"]} == {"train", "test"}
    assert (found.samples[checked]["suspicion"] == 0).all()
    assert not found.samples[checked]["flagged"].any()
    assert found.samples[~checked & (found.samples["split"] == "train")]["flagged"].all()
    assert not (set(found.suspects(top=300)["row"]) & set(found.samples[checked]["row"]))


def test_the_trace_of_a_large_table_tells_of_rounds_and_of_none_of_the_classes(tmp_path):
    n = 20_000
    folder = AuditFolder(tmp_path, np.zeros(n, dtype=np.int64), n)
    folder.end(np.full(n, 0.5), np.where(np.arange(n) == 7, -1, 1))
    last = Trace(tmp_path / "trace.bin", n).last()
    assert last["prediction"][[0, 7]].tolist() == [1, -1]


def test_rows_without_a_label_that_changed_are_noticed(table, tmp_path):
    frame = table[0].copy()
    frame.loc[:30, "kind"] = ""
    with pytest.raises(KeyboardInterrupt):
        stepe.clean(frame, label="kind", out=tmp_path / "run", follow=Stop(1))
    frame.loc[3, "b"] += 1
    with pytest.raises(stepe.errors.RunError, match="another configuration: inputs was"):
        stepe.clean(frame, label="kind", out=tmp_path / "run", resume=True)


def test_copies_under_the_same_wrong_label_do_not_vouch_for_each_other(tmp_path):
    random = np.random.default_rng(3)
    kinds = np.array(["cat", "dog", "owl"])[random.integers(0, 3, 300)]
    given = np.where(random.random(300) < 0.1, np.roll(kinds, 1), kinds)
    texts = [f"{kind} number {row}" for row, kind in enumerate(kinds)]
    copied = pd.DataFrame({"text": [*texts, *["cat number one"] * 6], "kind": [*given, *["dog"] * 6]})
    found = stepe.clean(copied, label="kind", text="text", out=tmp_path / "run")
    suspicion = found.samples.sort_values("row")["suspicion"].to_numpy()
    assert suspicion[-6:].min() > suspicion[:300][given == kinds].max()
    with np.load(found.path / "probabilities.npz") as guesses:
        assert (guesses["probability"][-6:, found.class_names.index("cat")] > 0.9).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"judges": "oracle"}, "there is no judge 'oracle'; choose among linear, kernel"),
        ({"judges": "network,forest"}, "mixes a network with others"),
        ({"judges": "forest", "epochs": 5}, "--epochs is for networks, and --judges names forest"),
        ({"judges": "network", "evidence": 0.5}, "--evidence is for judges that are no network"),
        ({"epochs": 5, "evidence": 0.5}, "--evidence is for judges that are no network: leave it or --epochs out"),
        ({"method": "step-e", "top": 5}, "leave it or --method out; `stepe cleaned` has --top for any run"),
        ({"judges": "network", "min_suspicion": 0.5}, "`stepe cleaned` has --min-suspicion for any run"),
        ({"evidence": 0.0}, "evidence is 0.0; it must be a number in"),
        ({"min_suspicion": 1.5}, "min_suspicion is 1.5"),
    ],
)
def test_options_that_do_not_go_together_are_refused(table, tmp_path, options, said):
    with pytest.raises(InputError, match=said):
        stepe.clean(table[0], label="kind", out=tmp_path / "run", **options)


def test_an_option_of_networks_selects_a_network_and_says_so(table, tmp_path):
    said = []
    run = stepe.clean(table[0], label="kind", out=tmp_path / "run", epochs=2, say=said.append)
    assert run.method == "step-e-plus"
    assert run.request.judges == ()
    assert said[-1].startswith("--epochs is for networks, so a network judged (as with --judges network)")
    assert (run.samples["split"] == "test").sum() == 60


def test_judges_are_compared_with_networks_where_that_is_asked_for(tmp_path):
    run = stepe.clean("digits", out=tmp_path / "run", compare=True, epochs=2)
    assert run.method == "audit"
    assert [other.method for other in run.others] == ["oracle", "plain", "step-e-plus"]
    assert run.summary.test_accuracy > 0.9
    assert stepe.clean("digits", out=tmp_path / "alone").others == []


@pytest.mark.parametrize(("side", "method"), [(12, "audit"), (24, "step-e-plus")])
def test_tiny_pictures_are_judged_by_their_pixels_and_larger_ones_by_a_network(tmp_path, side, method):
    from PIL import Image

    random = np.random.default_rng(0)
    for number in range(40):
        folder = tmp_path / "pictures" / ("dark" if number % 2 else "light")
        folder.mkdir(parents=True, exist_ok=True)
        level = 60 if number % 2 else 190
        pixels = np.clip(random.normal(level, 20, (side, side, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    if method != "audit":
        with pytest.raises(InputError, match="--top is for judges that are no network: leave it out, or choose other"):
            stepe.clean(tmp_path / "pictures", out=tmp_path / "run", top=5)
        assert not (tmp_path / "run").exists()
    options = {} if method == "audit" else {"epochs": 2, "judges": "network"}
    run = stepe.clean(tmp_path / "pictures", out=tmp_path / "run", **options)
    assert run.method == method
    if method == "audit":
        assert run.request.judges == ("kernel", "neighbours")
        assert (run.predict(tmp_path / "pictures")["predicted_label"] == "dark").sum() == 20


def test_few_rows_and_many_classes_are_audited_and_told(tmp_path):
    assert list(told_of_little(1_000, 10)) == []
    frame, _ = rows(20)
    said = []
    stepe.clean(frame, label="kind", out=tmp_path / "few", say=said.append)
    assert any(sentence.startswith("20 rows are few") for sentence in said)
    frame["kind"] = [f"class {row // 2 if row < 10 else row}" for row in range(20)]
    stepe.clean(frame, label="kind", out=tmp_path / "many", say=said.append)
    assert any("15 classes for 20 rows" in sentence for sentence in said)


def test_labels_of_chance_are_not_called_wrong(tmp_path):
    random = np.random.default_rng(0)
    run = stepe.clean((random.normal(size=(300, 5)), random.integers(0, 4, 300)), out=tmp_path / "run")
    assert not run.belief.has_signal
    assert run.summary.flagged == 0


def test_a_class_of_one_row_and_a_column_of_gaps_do_no_harm(table, tmp_path):
    frame = table[0].assign(nothing=np.nan)
    frame.loc[0, "kind"] = "rare"
    frame.loc[3, "b"] = np.inf
    run = stepe.clean(frame, label="kind", out=tmp_path / "run")
    assert run.samples["suspicion"].between(0, 1).all()
    assert not run.samples.set_index("row").loc[0, "flagged"]
