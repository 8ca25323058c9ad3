"""What people are shown of a run: which samples, how small, and the same again from disk."""

import io

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from stepe import RunError
from stepe.run.previews import (
    EXAMPLES,
    NEXT,
    Preview,
    clean_examples,
    encoded,
    media_type,
    read_previews,
    shortened,
    worth_showing,
    write_previews,
)


@pytest.fixture
def samples() -> pd.DataFrame:
    """200 training samples of two classes, those at 10, 20 and so on flagged, and some held out."""
    n = 220
    flagged = np.arange(n) % 10 == 0
    flagged[200:] = False
    table = pd.DataFrame(
        {
            "split": ["train"] * 200 + ["test"] * 20,
            "given_label": ["a", "b"] * (n // 2),
            "suspicion": np.random.default_rng(0).permutation(n) / n,
            "dropped": flagged,
            "flagged": flagged,
            "status": "open",
        }
    )
    order = np.lexsort((-table["suspicion"], ~flagged))
    table.loc[order, "rank"] = np.arange(1, n + 1)
    return table


def test_suspects_come_first_by_rank_then_the_next_in_line_then_examples(samples):
    chosen = worth_showing(samples, pictured=True)
    assert len(set(chosen)) == len(chosen)
    assert max(chosen) < 200
    assert samples.loc[chosen[:20], "rank"].tolist() == list(range(1, 21))
    assert not samples.loc[chosen[20:], "flagged"].any()
    assert set(clean_examples(samples).index) <= set(chosen)
    assert len(chosen) == 20 + NEXT + 2 * EXAMPLES


def test_fewer_pictures_are_kept_than_texts(samples, monkeypatch):
    monkeypatch.setattr("stepe.run.previews.PICTURED", 3)
    assert [samples.loc[worth_showing(samples, pictured=p), "flagged"].sum() for p in (True, False)] == [3, 20]


def test_examples_are_the_most_trusted_of_each_class(samples):
    found = clean_examples(samples)
    for name in ("a", "b"):
        of_class = samples[(samples["given_label"] == name) & ~samples["flagged"] & (samples["split"] == "train")]
        assert found[found["given_label"] == name]["suspicion"].tolist() == sorted(of_class["suspicion"])[:EXAMPLES]


def test_many_classes_have_fewer_examples_each(samples, monkeypatch):
    monkeypatch.setattr("stepe.run.previews.ALL_EXAMPLES", 4)
    assert clean_examples(samples)["given_label"].value_counts().to_dict() == {"a": 2, "b": 2}


def test_previews_are_the_same_again_from_disk(tmp_path):
    shown = [
        Preview(7, picture=b"\x89PNG..."),
        Preview(3, text="naïve\n<b>text</b>"),
        Preview(11, cells={"z": "007", "a": "", "=1+1": "NA"}),
    ]
    write_previews(tmp_path, [*shown, Preview(5)])
    found = read_previews(tmp_path)
    assert found == {preview.row: preview for preview in shown}
    assert list(found[11].cells or ()) == ["z", "a", "=1+1"]


def test_where_there_is_nothing_to_see_nothing_is_written(tmp_path):
    write_previews(tmp_path, [Preview(1), Preview(2)])
    assert list(tmp_path.iterdir()) == []
    assert read_previews(tmp_path) == {}


def test_a_damaged_file_is_an_error_that_names_it(tmp_path):
    (tmp_path / "exhibits.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(RunError, match=r"exhibits\.parquet cannot be read"):
        read_previews(tmp_path)


@pytest.mark.parametrize(
    ("size", "shown", "kind"),
    [
        ((8, 8), (8, 8), "PNG"),
        ((32, 20), (32, 20), "PNG"),
        ((64, 64), (64, 64), "WEBP"),
        ((400, 200), (160, 80), "WEBP"),
    ],
)
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_pictures_of_any_size_become_small_files(size, shown, kind, mode):
    content = encoded(Image.new(mode, size, 90))
    image = Image.open(io.BytesIO(content))
    assert (image.size, image.format) == (shown, kind)
    assert media_type(content) == f"image/{kind.lower()}"


def test_small_pictures_keep_every_pixel():
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(encoded(Image.fromarray(pixels))))), pixels)


@pytest.mark.parametrize(
    ("text", "cut"), [("short", "short"), ("exactly 10", "exactly 10"), ("eleven char", "eleven ch…"), ("\ud800", "?")]
)
def test_texts_are_cut_and_can_be_written_down(text, cut):
    assert shortened(text, 10) == cut
