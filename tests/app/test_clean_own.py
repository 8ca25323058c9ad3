"""``stepe.clean`` on people's own data: pictures, texts and tables, from file to run folder."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import stepe
from interrupted import StopHereError, Stopper
from stepe import InputError, Run, RunError
from stepe.app.networks import default_tuning
from stepe.app.resume import resume
from stepe.samples.augmentation import CropFlip
from stepe.samples.strong import Strong

pytestmark = pytest.mark.usefixtures("_elsewhere")
DEBIAN = Path(os.environ.get("STEPE_DATA", "")) / "debian-packages.csv"


@pytest.fixture
def frame() -> pd.DataFrame:
    """Texts of two kinds, one in ten under the wrong label, two without."""
    words = {"pet": ["cat", "dog", "paw", "fur"], "food": ["rice", "soup", "bread", "plate"]}
    draw = np.random.default_rng(0)
    truth = np.array(["pet", "food"] * 60)
    label = np.where(np.arange(120) % 10 == 3, np.where(truth == "pet", "food", "pet"), truth)
    label[[7, 8]] = ""
    return pd.DataFrame(
        {
            "nr": [f"{i:03d}" for i in range(120)],
            "text": [" ".join(draw.choice(words[name], 6)) + f" {i}" for i, name in enumerate(truth)],
            "size": [f"{(name == 'pet') * 5 + draw.normal():.3f}" for name in truth],
            "colour": [str(draw.choice(["red", "blue"])) for _ in truth],
            "who": [f"u{i // 3}" for i in range(120)],
            "label": label,
        }
    )


@pytest.fixture
def photos(tmp_path) -> Path:
    draw = np.random.default_rng(0)
    for name, channel in (("red", 0), ("blue", 2)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(15):
            picture = draw.integers(0, 80, (12, 14, 3), dtype=np.uint8)
            picture[..., channel] += 150
            Image.fromarray(picture).save(tmp_path / "photos" / name / f"{i}.png")
    return tmp_path / "photos"


def samples_of(run: Run, split: str) -> pd.DataFrame:
    return run.samples[run.samples["split"] == split]


# ---------------------------------------------------------------------------------------------------------------
# What comes out


@pytest.mark.parametrize(
    ("layout", "kind"),
    [({"text": "text"}, "text"), ({}, "table"), ({"features": "size"}, "features")],
)
def test_a_table_becomes_a_run_under_its_own_names(frame, layout, kind):
    frame.to_csv("mine.csv", index=False)
    run = stepe.clean("mine.csv", label="label", id="nr", split_by="who", epochs=3, rho_max=0.2, **layout)
    assert run.path == Path("runs/mine-1")
    request = run.request
    assert request.data == str(Path("mine.csv").resolve())
    assert request.kind == kind
    assert (request.label, request.text, request.id) == ("label", layout.get("text"), "nr")
    assert request.features == (("size",) if kind == "features" else None)
    assert request.is_experiment is False
    assert run.class_names == ["food", "pet"]
    samples = run.samples.sort_values("row")
    assert samples["id"].tolist() == frame["nr"].tolist()
    assert samples["given_label"].tolist() == frame["label"].tolist()
    assert sorted(samples["rank"]) == list(range(1, 121))
    predicted = samples_of(run, "unlabelled")
    assert predicted["id"].tolist() == ["007", "008"]
    assert set(predicted["suggested_label"]) <= {"food", "pet"}
    assert predicted["suspicion"].isna().all()
    assert not predicted["flagged"].any()
    assert run.summary.unlabelled == 2
    assert run.summary.samples + len(samples_of(run, "test")) == 118


def test_texts_are_learned_and_wrong_labels_found(frame):
    run = stepe.clean(frame, label="label", text="text", id="nr", rho_max=0.15, epochs=20, probe="in-sample")
    wrong = set(frame["nr"][np.arange(120) % 10 == 3]) - {"007", "008"}
    train = set(samples_of(run, "train")["id"])
    assert set() < set(run.issues["id"]) <= wrong
    samples = run.samples
    assert len(set(samples["id"][samples["dropped"]]) & wrong) >= 0.7 * len(wrong & train)
    assert samples_of(run, "unlabelled")["suggested_label"].tolist() == ["food", "pet"]
    assert run.path == Path("runs/table-1")


def test_a_folder_of_pictures_becomes_a_run(photos):
    (photos / "red" / "odd.png").write_text("no picture")
    (photos / "blue" / "copy.png").write_bytes((photos / "red" / "1.png").read_bytes())
    said: list[str] = []
    run = stepe.clean("photos/", epochs=2, rho_max=0.2, say=said.append)
    assert run.path == Path("runs/photos-1")
    request = run.request
    assert (request.kind, request.image_size, request.probe) == ("images", 32, "auto")
    assert request.duplicates == 2
    assert (run.path / "duplicates.csv").read_text().count("\n") == 3
    assert "red/odd.png" in (run.path / "unreadable.csv").read_text()
    assert "red/odd.png" not in set(run.samples["id"])
    assert {"red/1.png", "blue/copy.png"} <= set(run.samples["id"])
    assert json.loads((run.path / "preprocessing.json").read_text())["model"] == {
        "name": "resnet18",
        "classes": 2,
        "stem": "imagenet",
    }


@pytest.mark.usefixtures("photos")
def test_a_share_of_the_pictures_is_augmented_strongly(monkeypatch):
    seen = []

    def stop(*args: Any, augment: Any, **options: Any) -> None:
        seen.append(augment)
        raise StopHereError

    monkeypatch.setattr("stepe.app.work.begin", stop)
    for strong in (0.3, 0):
        with pytest.raises(StopHereError):
            stepe.clean("photos", strong=strong, epochs=2, rho_max=0.2, out="run", device="cpu")
    assert seen == [Strong(CropFlip(4), share=0.3), CropFlip(4)]


def test_long_trainings_on_a_cpu_are_announced_before_they_begin(photos, monkeypatch):
    monkeypatch.setattr("stepe.app.networks.PROBERS_SHARE", 1e6)

    def say(message: str) -> None:
        assert "min on this CPU for 24 pictures of 32 x 32 and 5 epochs" in message
        raise StopHereError

    with pytest.raises(StopHereError):
        stepe.clean("photos", epochs=5, rho_max=0.2, device="cpu", say=say)
    assert not Path("runs").exists()


def test_nothing_held_out_is_no_accuracy(frame):
    run = stepe.clean(frame, label="label", text="text", holdout=0, rho_max=0.2, epochs=2)
    assert run.summary.test_accuracy is None
    assert len(samples_of(run, "test")) == 0
    assert run.summary.samples == 118


def test_another_file_can_be_held_out(frame):
    frame[:100].to_csv("mine.csv", index=False)
    frame[100:].to_csv("held.csv", index=False)
    run = stepe.clean("mine.csv", label="label", text="text", id="nr", test="held.csv", rho_max=0.2, epochs=2)
    assert samples_of(run, "test")["id"].tolist() == frame["nr"][100:].tolist()
    assert run.request.test == str(Path("held.csv").resolve())


def test_trusted_rows_are_never_dropped(frame):
    frame["checked"] = "yes"
    run = stepe.clean(frame, label="label", text="text", trusted="checked", rho_max=0.4, epochs=3)
    assert run.summary.dropped == 0


def test_a_group_floor_is_passed_on(frame):
    run = stepe.clean(frame, label="label", text="text", group="colour", min_keep=1.0, rho_max=0.4, epochs=3)
    assert run.summary.dropped == 0
    assert run.config.fit.groups is not None


def test_the_probe_is_chosen_by_the_data_unless_it_is_named(frame):
    assert stepe.clean(frame, label="label", text="text", epochs=2).config.fit.probe == "auto"
    named = stepe.clean(frame, label="label", text="text", epochs=2, probe="cross:2", rho_max="auto", warmup="auto")
    assert named.config.fit.probe == "cross:2"
    assert stepe.clean("digits", epochs=1, compare=False).config.fit.probe == "in-sample"


def test_larger_data_gets_fewer_epochs_and_small_data_smaller_batches():
    for kind in ("images", "text", "table", "features"):
        epochs = [default_tuning(kind, n).epochs for n in (100, 5_000, 20_000, 200_000, 10_000_000)]
        assert epochs[0] == epochs[1] > epochs[2] > epochs[3] == epochs[4] >= 10
        assert default_tuning(kind, 100).batch_size == 64
        assert default_tuning(kind, 1000).batch_size == 128


# ---------------------------------------------------------------------------------------------------------------
# Resuming


def stop(*_: Any) -> Stopper:
    return Stopper(2)


@pytest.mark.parametrize("kind", ["text", "images"])
def test_an_interrupted_run_goes_on_with_the_same_columns(frame, photos, kind):
    frame.to_csv("mine.csv", index=False)
    data = "mine.csv" if kind == "text" else "photos"
    layout = {"label": "label", "text": "text", "id": "nr"} if kind == "text" else {}
    options: dict[str, Any] = {"rho_max": 0.2, "epochs": 3, "probe": "in-sample", **layout}
    whole = stepe.clean(data, out="whole", **options)
    with pytest.raises(StopHereError):
        stepe.clean(data, out="cut", follow=stop, **options)
    assert resume("cut").samples.equals(whole.samples)
    assert Path("cut/preprocessing.json").read_bytes() == Path("whole/preprocessing.json").read_bytes()


def test_a_frame_can_be_brought_again_by_its_owner(frame):
    options: dict[str, Any] = {"label": "label", "text": "text", "rho_max": 0.2, "epochs": 3, "out": "cut"}
    with pytest.raises(StopHereError):
        stepe.clean(frame, follow=stop, **options)
    with pytest.raises(RunError, match="the table it was made from"):
        resume("cut")
    assert stepe.clean(frame, resume=True, **options).finished


# ---------------------------------------------------------------------------------------------------------------
# Real data


@pytest.mark.slow
@pytest.mark.skipif(not DEBIAN.exists(), reason="debian-packages.csv is not here")
def test_debian_sections_are_learned_from_descriptions_and_from_the_rest():
    said: list[str] = []
    text = stepe.clean(DEBIAN, label="section", text="description", id="package", method="plain", epochs=15)
    assert text.summary.test_accuracy > 0.7
    table = stepe.clean(DEBIAN, label="section", id="package", method="plain", epochs=15, say=said.append)
    assert table.summary.test_accuracy > 0.25
    assert "column 'description' looks like text and is left out; to learn from it, say --text description" in said


def test_a_pair_of_inputs_is_one_too_many(frame):
    with pytest.raises(InputError, match="give one of --text, --image and --features"):
        stepe.clean(frame, label="label", text="text", features="size")
    assert not Path("runs").exists()
