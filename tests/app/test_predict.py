"""``Run.predict``: further data, encoded as the training data was."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import stepe
from stepe import InputError, Run, RunError

pytestmark = pytest.mark.usefixtures("_elsewhere")


@pytest.fixture
def frame() -> pd.DataFrame:
    draw = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "nr": [f"{i:03d}" for i in range(60)],
            "text": [f"{'cat paw' if i % 2 else 'rice soup'} {i}" for i in range(60)],
            "size": [f"{i % 2 * 5 + draw.normal():.3f}" for i in range(60)],
            "colour": [["red", "blue", ""][i % 3] for i in range(60)],
            "label": [["food", "pet"][i % 2] for i in range(60)],
        }
    )


def train(data: Any, **options: Any) -> Run:
    return stepe.clean(data, out="run", rho_max=0.1, epochs=3, probe="in-sample", **options)


def suggestions(run: Run, split: str) -> dict[str, tuple[str, float]]:
    """What the run itself says of samples it did not train on."""
    found = run.samples[run.samples["split"] == split]
    pairs = zip(found["suggested_label"], found["suggestion_confidence"], strict=True)
    return dict(zip(found["id"], pairs, strict=True))


@pytest.mark.parametrize(
    "layout",
    [{"text": "text"}, {}, {"features": ["size"]}, {"method": "co-teaching"}],
    ids=["text", "table", "features", "one of two networks"],
)
@pytest.mark.parametrize("form", ["frame", "csv", "parquet"])
def test_held_out_samples_are_predicted_as_in_the_run_itself(frame, layout, form):
    run = train(frame, label="label", id="nr", **layout)
    data: Any = frame.drop(columns="label")
    if form == "csv":
        data.to_csv("new.csv", index=False)
        data = "new.csv"
    elif form == "parquet":
        data.to_parquet("new.parquet")
        data = Path("new.parquet")
    found = run.predict(data)
    assert list(found.columns) == ["id", "predicted_label", "confidence"]
    assert found["id"].tolist() == frame["nr"].tolist()
    by_id = found.set_index("id")
    for key, (label, confidence) in suggestions(run, "test").items():
        assert by_id.loc[key, "predicted_label"] == label
        assert by_id.loc[key, "confidence"] == pytest.approx(confidence, abs=1e-5)


def test_pictures_are_predicted_from_a_folder_of_any_shape():
    draw = np.random.default_rng(0)
    for name in ("dark", "light"):
        Path("photos", name).mkdir(parents=True)
        for i in range(10):
            picture = draw.integers(0, 100, (20, 16, 3), dtype=np.uint8) + (name == "light") * 150
            Image.fromarray(picture.astype(np.uint8)).save(f"photos/{name}/{i}.png")
    run = train("photos")
    by_id = run.predict("photos").set_index("id")
    assert len(by_id) == 20
    for key, (label, confidence) in suggestions(run, "test").items():
        assert by_id.loc[key, "predicted_label"] == label
        assert by_id.loc[key, "confidence"] == pytest.approx(confidence, abs=1e-5)
    assert run.predict("photos/dark")["id"].tolist() == [f"{i}.png" for i in range(10)]


def test_arrays_and_their_files_are_predicted(tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 3))
    run = train((x, np.arange(40) % 2))
    np.savez("new.npz", features=x)
    np.save("new.npy", x)
    expected = run.predict(x)
    assert run.predict("new.npz").equals(expected)
    assert run.predict("new.npy").equals(expected)
    for key, (label, _) in suggestions(run, "test").items():
        assert expected["predicted_label"][int(key)] == label
    with pytest.raises(InputError, match=r"shape \(40, 2\); the model was trained on 3 columns"):
        run.predict(x[:, :2])


def test_a_moved_run_needs_nothing_but_its_own_files(frame):
    run = train(frame, label="label", id="nr", text="text")
    expected = run.predict(frame)
    Path("elsewhere").mkdir()
    for name in ("config.json", "preprocessing.json", "model.safetensors"):
        shutil.copy(run.path / name, "elsewhere")
    assert Run("elsewhere").predict(frame).equals(expected)


def test_predicting_leaves_random_generators_alone(frame):
    run = train(frame, label="label", text="text")
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    run.predict(frame)
    assert torch.equal(torch.rand(2), expected)


def test_data_of_another_form_says_what_is_missing(frame):
    run = train(frame, label="label", id="nr", text="text")
    with pytest.raises(InputError, match="has no column 'text' for --text"):
        run.predict(frame[["size"]])
    with pytest.raises(InputError, match=r"'nothing.csv' is neither a file here"):
        run.predict("nothing.csv")
    np.save("x.npy", np.ones((3, 2)))
    with pytest.raises(InputError, match="run was trained on text, and the data is features; give data like that"):
        run.predict("x.npy")


def test_a_run_that_cannot_predict_says_why(frame):
    run = train(frame, label="label", text="text")
    (run.path / "model.safetensors").write_bytes(b"gone")
    with pytest.raises(RunError, match=r"run cannot predict: its model or preprocessing.json is damaged"):
        run.predict(frame)
    (run.path / "preprocessing.json").unlink()
    with pytest.raises(RunError, match=r"run cannot predict: it has no preprocessing.json"):
        run.predict(frame)
