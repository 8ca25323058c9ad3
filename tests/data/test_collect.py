"""People's own data: from files and frames to samples, and what is said about those that cannot be used."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from stepe import InputError
from stepe.data.noise import Noise
from stepe.data.source import Source, open_own, open_source
from stepe.options.layout import Layout

N = 60


@pytest.fixture
def frame() -> pd.DataFrame:
    """Reviews with a score, the author and a few more columns."""
    return pd.DataFrame(
        {
            "key": [f"{i:03d}" for i in range(N)],
            "review": [f"{'good' if i % 2 else 'bad'} film number {i}" for i in range(N)],
            "stars": [["1", "2", "10"][i % 3] for i in range(N)],
            "author": [f"a{i // 4}" for i in range(N)],
            "minutes": [str(60 + i * i % 50) for i in range(N)],
            "country": [["IT", "NA", "Côte d'Ivoire", ""][i % 4] for i in range(N)],
            "checked": [["yes", "no", "TRUE", ""][i % 4] for i in range(N)],
        }
    )


@pytest.fixture
def photos(tmp_path) -> Path:
    """Ten red pictures and ten blue ones, of several sizes."""
    for colour in ("red", "bleu é"):
        (tmp_path / "photos" / colour).mkdir(parents=True)
        for i in range(10):
            shade = (200 + i, 0, 0) if colour == "red" else (0, 0, 200 + i)
            Image.new("RGB", (10 + i, 20), shade).save(tmp_path / "photos" / colour / f"{i}.png")
    return tmp_path / "photos"


def own(data: Any, say=lambda message: None, **layout: Any) -> Source:
    return open_own(data, Layout(**layout), say)


def everything(source: Source) -> dict[str, str]:
    """Label by id, training and held-out samples together."""
    ids = source.names.ids + source.test_names.ids
    return dict(
        zip(ids, [source.class_names[i] for i in np.concatenate([source.labels, source.test_labels])], strict=True)
    )


# ---------------------------------------------------------------------------------------------------------------
# What is read


@pytest.mark.parametrize(
    ("layout", "kind"),
    [({"text": "review"}, "text"), ({"features": ("minutes",)}, "features"), ({}, "table")],
)
@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "frame"])
def test_every_format_gives_the_same_samples(frame, tmp_path, layout, kind, suffix):
    path: Any = tmp_path / f"films.{suffix}"
    if suffix == "frame":
        path = frame
    elif suffix == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    elif suffix == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == "tsv" else ",")
    found, expected = own(path, label="stars", id="key", **layout), own(frame, label="stars", id="key", **layout)
    assert found.kind == kind
    assert found.class_names == ["1", "2", "10"]
    assert everything(found) == dict(zip(frame["key"], frame["stars"], strict=True))
    assert np.array_equal(found.x, expected.x)
    assert found.reference == (None if suffix == "frame" else str(path))
    assert found.name == ("table" if suffix == "frame" else "films")


def test_without_an_id_rows_are_counted_or_keep_the_names_of_a_frame(frame):
    assert sorted(own(frame, label="stars").names.rows + own(frame, label="stars").test_names.rows) == list(range(N))
    assert "0" in everything(own(frame, label="stars"))
    named = frame.set_index("key")
    assert set(everything(own(named, label="stars"))) == set(frame["key"])


def test_a_folder_per_class_is_named_by_paths(photos):
    found = own(photos)
    assert found.kind == "images"
    assert found.class_names == ["bleu é", "red"]
    assert found.x.shape == (16, 3, 32, 32)
    assert found.x.dtype == np.uint8
    assert everything(found)["bleu é/3.png"] == "bleu é"
    assert own(photos, image_size=12).x.shape[-1] == 12
    assert found.mean is not None


def test_pictures_can_be_listed_in_a_table(photos):
    rows = [{"file": f"photos/{colour}/{i}.png", "what": colour} for colour in ("red", "bleu é") for i in range(10)]
    rows.append({"file": "photos/red/missing.png", "what": "red"})
    pd.DataFrame(rows).to_csv(photos.parent / "list.csv", index=False)
    said: list[str] = []
    found = own(photos.parent / "list.csv", said.append, label="what", image="file", id="file")
    assert found.kind == "images"
    assert everything(found)["photos/red/3.png"] == "red"
    assert sorted(found.names.rows + found.test_names.rows) == list(range(20))
    assert found.files["unreadable.csv"].startswith("id,reason\nphotos/red/missing.png,")
    assert "1 of 21 pictures cannot be read" in said[0]


def test_pictures_can_lie_in_the_cells(photos):
    cells = [{"bytes": path.read_bytes(), "path": None} for path in sorted(photos.rglob("*.png"))]
    found = own(pd.DataFrame({"image": cells, "label": ["b"] * 10 + ["r"] * 10}), label="label", image="image")
    assert found.x.shape == (16, 3, 32, 32)


@pytest.mark.parametrize("path", ["../outside.png", "/etc/passwd", "photos/../../x.png"])
def test_paths_that_leave_the_folder_of_the_table_are_refused(photos, path):
    pd.DataFrame({"file": ["photos/red/1.png", path], "what": ["a", "b"]}).to_csv(photos.parent / "l.csv", index=False)
    with pytest.raises(InputError, match=r"in row 1 of l lies outside .*; paths must stay below the folder"):
        own(photos.parent / "l.csv", label="what", image="file")


def test_a_pair_of_npy_files_is_as_good_as_an_npz(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = np.random.default_rng(0).normal(size=(20, 3)), np.array(["b", "a"] * 10)
    np.save("x.npy", x)
    np.save("y.npy", y)
    found = open_source("x.npy,y.npy")
    assert np.array_equal(found.x, own((x, y)).x)
    assert found.name == "x"
    assert found.reference == f"{tmp_path / 'x.npy'},{tmp_path / 'y.npy'}"
    with pytest.raises(InputError, match=r"x.npy holds one array; give the labels too: x.npy,labels.npy"):
        open_source("x.npy")
    with pytest.raises(InputError, match=r"'x.npy,z.npy' is neither a file here"):
        open_source("x.npy,z.npy")
    Path("y.npy").write_bytes(b"odd")
    with pytest.raises(InputError, match=r"y.npy cannot be read as an npy file"):
        open_source("x.npy,y.npy")


# ---------------------------------------------------------------------------------------------------------------
# Roles of columns


def test_rows_without_a_label_are_set_apart_for_prediction(frame):
    frame.loc[[3, 7], "stars"] = ["", " "]
    found = own(frame, label="stars", text="review", id="key")
    assert found.unlabelled_names.ids == ["003", "007"]
    assert found.unlabelled_names.split == "unlabelled"
    assert found.unlabelled_x.shape == (2, found.x.shape[1])
    assert len(everything(found)) == N - 2


def test_labels_that_are_missing_from_numbers_leave_the_others_whole(frame):
    frame["stars"] = [None if i == 3 else float(i % 3) for i in range(N)]
    found = own(frame, label="stars", text="review")
    assert found.class_names == ["0", "1", "2"]
    assert found.unlabelled_names.rows == [3]


def test_trusted_rows_and_groups_follow_the_training_samples(frame):
    found = own(frame, label="stars", text="review", trusted="checked", group="country")
    assert found.trusted.tolist() == [frame["checked"][row] in ("yes", "TRUE") for row in found.names.rows]
    country = frame["country"][found.names.rows].tolist()
    assert len(set(zip(found.groups.tolist(), country, strict=True))) == 4


def test_roles_are_no_inputs_of_a_table(frame):
    found = own(frame, label="stars", id="key", trusted="checked", split_by="author", group="country")
    assert [column.name for column in found.encoder.columns] == ["minutes", "country"]


def test_a_user_stays_on_one_side(frame):
    found = own(frame, label="stars", text="review", split_by="author")
    train, test = (set(frame["author"][names.rows]) for names in (found.names, found.test_names))
    assert test
    assert not train & test


def test_the_hold_out_can_be_another_share_none_or_another_file(frame, tmp_path):
    assert len(own(frame, label="stars", text="review", holdout=0.5).test_labels) == 30
    none = own(frame, label="stars", text="review", holdout=0)
    assert len(none.test_labels) == 0
    assert len(none.x) == N
    frame.loc[0, "stars"] = ""
    frame.to_csv(tmp_path / "test.csv", index=False)
    said: list[str] = []
    frame.loc[0, "stars"] = "2"
    found = own(frame, said.append, label="stars", text="review", id="key", test=str(tmp_path / "test.csv"))
    assert np.array_equal(found.x, none.x)
    assert found.test_names.ids == frame["key"].tolist()[1:]
    assert said == ["1 rows of the test data have no label and are left out"]
    frame["stars"] = frame["stars"].replace("10", "3")
    with pytest.raises(InputError, match="class '10' of the test data test is not among the training labels"):
        own(frame, label="stars", text="review", test=str(tmp_path / "test.csv"))


def test_the_encoder_is_fitted_on_the_training_part(frame):
    held_out = own(frame, label="stars", text="review").test_names.rows
    before = own(frame, label="stars", text="review").encoder
    frame.loc[held_out, "review"] = "something else entirely"
    assert own(frame, label="stars", text="review").encoder == before


# ---------------------------------------------------------------------------------------------------------------
# Duplicates


def test_equal_inputs_under_different_labels_are_listed(frame):
    frame.loc[10, ["review", "stars"]] = [" the same ", "1"]
    frame.loc[[20, 30], "review"] = "the same"
    frame.loc[[20, 30], "stars"] = ["2", "1"]
    frame.loc[[41, 42], ["review", "stars"]] = ["twice, and agreed", "1"]
    frame.loc[[51, 52], "review"] = ""
    said: list[str] = []
    found = own(frame, said.append, label="stars", text="review", id="key")
    assert found.duplicates == 3
    assert found.files["duplicates.csv"] == "id,row,given_label,group\n010,10,1,1\n020,20,2,1\n030,30,1,1\n"
    assert "3 samples, in 1 groups of the very same input, carry different labels" in said[-1]
    assert len(found.labels) + len(found.test_labels) == N


def test_equal_pictures_rows_and_features_are_found_too(photos):
    (photos / "red" / "copy.png").write_bytes((photos / "bleu é" / "0.png").read_bytes())
    assert own(photos).duplicates == 2
    x = np.repeat(np.eye(10), 2, axis=0)
    assert own((x, np.arange(20) % 2)).duplicates == 20
    assert own((x, np.arange(20) // 4)).duplicates == 0
    table = pd.DataFrame({"a": [str(i // 2) for i in range(20)], "y": ["u", "v"] * 10})
    assert own(table, label="y").duplicates == 20


# ---------------------------------------------------------------------------------------------------------------
# What cannot be used

MISTAKES = {
    "no label": ({}, r"say which column of table holds the labels, with --label; it has key, review, stars"),
    "unknown label": ({"label": "score"}, "table has no column 'score' for --label; it has key, review"),
    "unknown text": ({"label": "stars", "text": "body"}, "has no column 'body' for --text"),
    "unknown group": ({"label": "stars", "group": "sex"}, "has no column 'sex' for --group"),
    "unknown id": ({"label": "stars", "id": "nr"}, "has no column 'nr' for --id"),
    "unknown user": ({"label": "stars", "split_by": "user"}, "has no column 'user' for --split-by"),
    "two inputs": ({"label": "stars", "text": "review", "features": ("minutes",)}, "give one of --text, --image"),
    "an id as label": ({"label": "key"}, "all 60 labels of table are different: that is an id, not a class"),
    "repeated ids": ({"label": "stars", "id": "author"}, r"gives 15 ids to more than one row \('a0', 'a1', .*\)"),
    "words as features": ({"label": "stars", "features": ("review",)}, "column 'review' of table is not numeric"),
    "gaps in features": ({"label": "stars", "features": ("gaps",)}, r"NaN or infinity \(first in row 1\)"),
    "one class": ({"label": "same"}, "all labels of table are 'x'; at least two classes are needed"),
    "measurements": (
        {"label": "height"},
        r"look like measurements \(0.0, 0.1, 0.2, ...\), not classes; sort them into",
    ),
    "nothing labelled": ({"label": "empty"}, "no row of table has a label"),
    "nothing to read": ({"label": "stars", "text": "empty"}, "all texts in column 'empty' of table are empty"),
    "too large a hold-out": ({"label": "stars", "text": "review", "holdout": 2.0}, "holdout is 2.0"),
}


@pytest.mark.parametrize(("layout", "told"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_says_what_to_do(frame, layout, told):
    frame["gaps"] = ["1", ""] * 30
    frame["same"] = "x"
    frame["empty"] = ""
    frame["height"] = [f"{(i % 50) / 10}" for i in range(N)]
    with pytest.raises(InputError, match=told):
        own(frame, **layout)


def test_the_training_data_is_no_test_data(frame, tmp_path):
    path = tmp_path / "table.csv"
    frame.to_csv(path, index=False)
    with pytest.raises(InputError, match="the test data is the training data"):
        own(str(path), label="stars", text="review", test=str(path))


def test_a_table_of_nothing_but_ids_has_nothing_to_learn_from():
    table = pd.DataFrame({"nr": [str(i) for i in range(20)], "same": ["1"] * 20, "y": ["a", "b"] * 10})
    with pytest.raises(InputError, match="every column of the table is empty or holds one value"):
        own(table, label="y")
    with pytest.raises(InputError, match="has no column to learn from besides"):
        own(table[["nr", "y"]], label="y")


def test_few_fractions_are_classes(frame):
    frame["stars"] = [["0.5", "1.5", "2"][i % 3] for i in range(N)]
    assert own(frame, label="stars", text="review").class_names == ["0.5", "1.5", "2"]


def test_a_class_with_one_sample_stays_in_training(frame):
    frame.loc[5, "stars"] = "rare"
    found = own(frame, label="stars", text="review")
    assert found.class_names.index("rare") in found.labels
    assert found.class_names.index("rare") not in found.test_labels


def test_ten_thousand_classes_are_possible():
    x = np.random.default_rng(0).normal(size=(20_000, 2))
    found = own((x, np.arange(20_000) // 2))
    assert found.classes == 10_000
    assert len(found.labels) == len(found.test_labels) == 10_000


def test_empty_texts_are_counted(frame):
    frame.loc[[1, 2], "review"] = ""
    said: list[str] = []
    own(frame, said.append, label="stars", text="review")
    assert said == ["2 texts of 60 are empty; nothing can be learned from them"]


def test_columns_are_for_tables_only(photos):
    with pytest.raises(InputError, match="has no columns; leave --label and --text out"):
        own(photos, label="a", text="b")
    with pytest.raises(InputError, match="digits has no columns; leave --id out"):
        open_source("digits", layout=Layout(id="a"))


def test_pictures_of_other_kinds_are_named_and_left_out(photos):
    for name in ("a.tif", "b.TIF", "c.gif"):
        (photos / "red" / name).write_bytes(b"")
    said: list[str] = []
    own(photos, said.append)
    assert any("also holds 1 .gif, 2 .tif, which are left out; files must end in .png, .jpg" in line for line in said)


def test_empty_class_folders_are_named_and_left_out(photos):
    (photos / "green").mkdir()
    (photos / "notes.txt").write_text("")
    Image.new("RGB", (4, 4)).save(photos / "loose.png")
    said: list[str] = []
    assert own(photos, said.append).classes == 2
    assert said == ["no pictures in green; 1 folder left out"]
    with pytest.raises(InputError, match=r"red holds pictures but no subfolders"):
        own(photos / "red")


# ---------------------------------------------------------------------------------------------------------------
# Planted noise


@pytest.mark.parametrize("kind", ["symmetric", "asymmetric", "instance", "outliers"])
@pytest.mark.parametrize("layout", [{"text": "review"}, {}], ids=["text", "table"])
def test_noise_can_be_planted_in_texts_and_tables(frame, kind, layout):
    clean = own(frame, label="stars", **layout)
    planted = clean.planted(Noise(kind, 0.25), 0)
    noisy = planted.truth.noisy
    assert int(noisy.sum()) == pytest.approx(0.25 * len(noisy), abs=1)
    assert np.array_equal(planted.x[~noisy], clean.x[~noisy])
    assert planted.x.dtype == clean.x.dtype
    if kind == "outliers" and not layout:
        assert (planted.x.max(0) <= clean.x.max(0)).all()
        assert (planted.x.min(0) >= clean.x.min(0)).all()
