"""Originals: what people are shown is what they gave, not what became of it."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from stepe.data.noise import Noise
from stepe.data.originals import Originals
from stepe.data.source import digits, open_own
from stepe.options.layout import Layout


def picture_of(preview) -> Image.Image:
    return Image.open(io.BytesIO(preview.picture))


@pytest.fixture
def photos(tmp_path) -> Path:
    for i in range(12):
        folder = tmp_path / "photos" / ("wide", "tall")[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (400, 100) if i % 2 == 0 else (100, 400), (10 * i, 0, 0)).save(folder / f"{i}.png")
    return tmp_path / "photos"


def test_photos_are_shown_whole_and_larger_than_they_are_learned_from(photos):
    source = open_own(photos)
    shown = source.previews(list(range(len(source.labels))))
    assert [preview.row for preview in shown] == source.names.rows
    for preview, label in zip(shown, source.labels.tolist(), strict=True):
        assert picture_of(preview).size == {"wide": (160, 40), "tall": (40, 160)}[source.class_names[label]]


def test_a_photo_that_is_gone_is_shown_as_it_was_learned(photos):
    source = open_own(photos)
    (photos / source.names.ids[3]).unlink()
    sizes = [picture_of(preview).size for preview in source.previews([2, 3])]
    assert sizes[0] != (32, 32)
    assert sizes[1] == (32, 32)


def test_pictures_in_a_table_are_shown_too(photos):
    files = sorted(photos.rglob("*.png"))
    frame = pd.DataFrame(
        {"image": [file.read_bytes() for file in files], "label": [file.parent.name for file in files]}
    )
    (preview,) = open_own(frame, Layout(label="label", image="image")).previews([0])
    assert max(picture_of(preview).size) == 160


def test_contents_that_would_fill_the_memory_are_not_kept(monkeypatch):
    monkeypatch.setattr("stepe.data.originals.HELD_BYTES", 5)
    assert Originals.of_pictures([b"123", b"456"]).pictures is None
    assert Originals.of_pictures([b"123", Path("a.png")]).pictures is not None


def test_digits_are_shown_pixel_for_pixel():
    source = digits()
    (preview,) = source.previews([5])
    assert np.array_equal(np.asarray(picture_of(preview)), (source.x[5] * 255).round().reshape(8, 8).astype(np.uint8))


def test_texts_are_shown_as_they_are():
    texts = [f"text {i} " + "x" * 3000 * (i == 2) for i in range(20)]
    frame = pd.DataFrame({"text": texts, "label": ["a", "b"] * 10})
    source = open_own(frame, Layout(label="label", text="text"))
    for preview in source.previews(list(range(len(source.labels)))):
        assert preview.text == texts[preview.row] if preview.row != 2 else len(preview.text) == 2000


def test_rows_are_shown_with_every_cell_but_label_and_id():
    frame = pd.DataFrame(
        {
            "nr": [f"{i:03}" for i in range(20)],
            "price": [str(i / 2) for i in range(20)],
            "note": [f"in words, {i}" for i in range(20)],
            "kind": ["a", "b"] * 10,
            "stepe_flagged": ["yes"] * 20,
        }
    )
    source = open_own(frame, Layout(label="kind", id="nr"))
    for preview in source.previews([0, 7]):
        row = preview.row
        assert preview.cells == {"price": str(row / 2), "note": f"in words, {row}"}


def test_wide_rows_and_long_cells_are_cut():
    frame = pd.DataFrame({f"c{i}": ["1", "1", "22", "22"] * 5 for i in range(50)} | {"label": ["a", "b"] * 10})
    frame["c0"] = [f"{i} " + "w" * 500 for i in range(20)]
    (preview,) = open_own(frame, Layout(label="label")).previews([0])
    assert len(preview.cells) == 30
    assert len(preview.cells["c0"]) == 300


def test_features_have_nothing_to_show_but_the_columns_beside_them():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 2)), columns=["e1", "e2"]).assign(
        label=["a", "b"] * 10
    )
    layout = Layout(label="label", features=("e*",))
    assert open_own(frame, layout).previews([0])[0].empty
    (beside,) = open_own(frame.assign(title="a name"), layout).previews([0])
    assert beside.cells == {"title": "a name"}


def test_what_was_done_to_an_input_is_not_hidden_by_its_original(photos):
    planted = open_own(photos).planted(Noise.parse("outliers:0.5"), seed=0)
    assert {picture_of(preview).size for preview in planted.previews(list(range(len(planted.labels))))} == {(32, 32)}
