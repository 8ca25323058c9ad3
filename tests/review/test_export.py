"""Exports: in the form that the other tool reads, with what a person needs to decide."""

import base64
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from stepe import InputError, Run, RunError
from stepe.review.export import export
from stepe.run.paths import remember
from stepe.run.previews import Preview, encoded, write_previews

CLASSES = ['<b> & "c"', "NA"]


@pytest.fixture
def make_run(tmp_path):
    """The few files of a run with four samples, of which the first and the third are suspects."""

    def make(data: Path | None, *, ids: list[str] | None = None, pictures: bool = False, **request) -> Run:
        folder = tmp_path / "run"
        folder.mkdir()
        request = {"data": None if data is None else str(data), "label": "label", **request}
        config = {"format": 1, "request": request, "fit": {"method": "step-e"}, "class_names": CLASSES}
        (folder / "config.json").write_text(json.dumps(config))
        pd.DataFrame(
            {
                "rank": [2, 3, 1, 4],
                "id": ids or ["007", "008", "009", "010"],
                "row": range(4),
                "split": ["train", "train", "test", "train"],
                "given_label": [CLASSES[1], CLASSES[0], CLASSES[1], CLASSES[0]],
                "suggested_label": [CLASSES[0], CLASSES[0], "", CLASSES[0]],
                "suspicion": [0.75, 0.25, 1.0, np.nan],
                "suggestion_confidence": [0.5, 0.5, np.nan, 0.5],
                "flagged": [True, False, True, False],
                "status": "open",
            }
        ).to_parquet(folder / "samples.parquet", index=False)
        if pictures:
            images = np.arange(8, dtype=np.uint8).reshape(2, 2, 2)
            shown = [
                Preview(row, picture=encoded(Image.fromarray(image))) for row, image in zip((0, 2), images, strict=True)
            ]
            write_previews(folder, shown)
        (folder / "summary.json").write_text("{}")
        remember(folder)
        return Run(folder)

    return make


@pytest.fixture
def texts(tmp_path) -> Path:
    frame = pd.DataFrame({"text": ["one, two", "b", 'say "x"', "d"], "label": [CLASSES[i] for i in (1, 0, 1, 0)]})
    frame.to_csv(tmp_path / "texts.csv", index=False)
    return tmp_path / "texts.csv"


@pytest.fixture
def photos(tmp_path) -> tuple[Path, list[str]]:
    names = ["NA/1 é.png", "b/2.png", "NA/3.png", "b/4.png"]
    for name in names:
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (2, 2)).save(tmp_path / "photos" / name)
    return tmp_path / "photos", names


def read(path: Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8"))


# ---------------------------------------------------------------------------------------------------------------
# Label Studio


def test_suspects_become_tasks_with_the_suggestion_predicted(make_run, texts):
    run = make_run(texts, text="text", kind="text")
    written = export(run, "label-studio")
    assert written == run.path / "label-studio.json"
    first, second = read(written)  # the most suspicious comes first
    assert first == {
        "data": {
            "text": 'say "x"',
            "id": "009",
            "source_row": 2,
            "split": "test",
            "given_label": "NA",
            "suggested_label": "",
            "suspicion": 1.0,
        },
        "predictions": [],
    }
    assert second["data"]["text"] == "one, two"
    assert second["predictions"] == [
        {
            "model_version": "stepe step-e",
            "score": 0.5,
            "result": [
                {"from_name": "label", "to_name": "sample", "type": "choices", "value": {"choices": [CLASSES[0]]}}
            ],
        }
    ]


def test_the_labelling_interface_offers_the_classes_and_fits_the_predictions(make_run, texts):
    export(make_run(texts, text="text"), "label-studio", out=texts.with_name("tasks.json"))
    view = ElementTree.fromstring(texts.with_name("tasks.xml").read_text(encoding="utf-8"))
    assert (view.find("Text").get("name"), view.find("Text").get("value")) == ("sample", "$text")
    assert (view.find("Choices").get("name"), view.find("Choices").get("toName")) == ("label", "sample")
    assert [choice.get("value") for choice in view.iter("Choice")] == CLASSES


def test_all_samples_can_be_had(make_run, texts):
    assert len(read(export(make_run(texts, text="text"), "label-studio", everything=True))) == 4


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_rows_of_a_table_are_shown_as_they_are(make_run, tmp_path, suffix):
    rows = [{"age": age, "label": CLASSES[i]} for age, i in zip(["01", "02", "03", "04"], (1, 0, 1, 0), strict=True)]
    path = tmp_path / f"table{suffix}"
    if suffix == ".csv":
        pd.DataFrame(rows).to_csv(path, index=False)
    elif suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row) for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    written = export(make_run(path, kind="table"), "label-studio")
    assert [task["data"]["row"] for task in read(written)] == [{"age": "03"}, {"age": "01"}]
    assert "<Table" in written.with_suffix(".xml").read_text()


def test_images_are_served_from_their_folder(make_run, photos):
    folder, names = photos
    said: list[str] = []
    written = export(make_run(folder, ids=names, kind="images"), "label-studio", say=said.append)
    assert [task["data"]["image"] for task in read(written)] == [
        "/data/local-files/?d=NA/3.png",
        "/data/local-files/?d=NA/1%20%C3%A9.png",
    ]
    assert f"DOCUMENT_ROOT={folder}," in said[0]


def test_pictures_without_a_file_are_put_in(make_run):
    first, _ = read(export(make_run(None, pictures=True), "label-studio"))
    kind, _, data = first["data"]["image"].partition(",")
    assert kind == "data:image/png;base64"
    assert np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))).tolist() == [[4, 5], [6, 7]]


def test_features_are_known_by_their_id(make_run):
    first, _ = read(export(make_run(None), "label-studio"))
    assert first["data"]["row"] == {"id": "009"}


# ---------------------------------------------------------------------------------------------------------------
# FiftyOne


def test_images_become_samples_with_two_classifications(make_run, photos):
    folder, names = photos
    run = make_run(folder, ids=names, kind="images")
    written = export(run, "fiftyone", everything=True)
    samples = read(written / "samples.json")["samples"]
    assert samples[1] == {
        "filepath": str(folder / names[0]),
        "tags": ["train"],
        "ground_truth": {"_cls": "Classification", "tags": [], "label": "NA"},
        "stepe_id": names[0],
        "stepe_flagged": True,
        "suggestion": {"_cls": "Classification", "tags": [], "label": CLASSES[0], "confidence": 0.5},
        "mistakenness": 0.75,
    }
    assert "suggestion" not in samples[0]
    assert "mistakenness" not in samples[3]
    metadata = read(written / "metadata.json")
    assert metadata["info"]["classes"] == CLASSES
    assert "version" not in metadata  # with one, FiftyOne expects a copy of its own database


def test_paths_in_a_column_are_relative_to_the_table(make_run, photos):
    folder, names = photos
    table = folder / "list.csv"
    pd.DataFrame({"file": names, "label": [CLASSES[i] for i in (1, 0, 1, 0)]}).to_csv(table, index=False)
    written = export(make_run(table, image="file", kind="images"), "fiftyone", out=folder / "fo")
    assert [sample["filepath"] for sample in read(written / "samples.json")["samples"]] == [
        str(folder / names[2]),
        str(folder / names[0]),
    ]


def test_pictures_without_a_file_are_written_beside_the_samples(make_run):
    written = export(make_run(None, pictures=True), "fiftyone", everything=True)
    paths = [sample["filepath"] for sample in read(written / "samples.json")["samples"]]
    assert paths == ["data/00000002.png", "data/00000000.png"]
    assert np.asarray(Image.open(written / paths[1])).tolist() == [[0, 1], [2, 3]]


# ---------------------------------------------------------------------------------------------------------------
# What is refused


def test_fiftyone_takes_images_only(make_run, texts):
    with pytest.raises(InputError, match=r"FiftyOne shows images, and .* has none; export it to label-studio"):
        export(make_run(texts, text="text", kind="text"), "fiftyone")


@pytest.mark.parametrize(("to", "out"), [("argilla", None), ("label-studio", "a.csv"), ("label-studio", "no/a.json")])
def test_what_cannot_be_written_is_refused(make_run, texts, tmp_path, to, out):
    with pytest.raises(InputError, match=r"choose label-studio or fiftyone|does not end in \.json|no folder"):
        export(make_run(texts, text="text"), to, out=out and tmp_path / out)


def test_an_input_that_changed_is_refused(make_run, texts):
    run = make_run(texts, text="text")
    texts.write_text("text,label\na,NA\nb,NA\nc,b\n")
    with pytest.raises(RunError, match=r"has changed since the run: row 2 "):
        export(run, "label-studio")


@pytest.mark.parametrize("name", ["../secret.png", "/etc/passwd"])
def test_an_image_outside_the_input_is_handed_to_nobody(make_run, photos, name, tmp_path):
    (tmp_path / "secret.png").touch()
    run = make_run(photos[0], ids=[name, *photos[1][1:]], kind="images")
    with pytest.raises(RunError, match=f"the picture '{name}' lies outside of"):
        export(run, "label-studio")
    assert not (run.path / "label-studio.json").exists()


def test_an_image_that_is_gone_is_missed(make_run, photos):
    folder, names = photos
    run = make_run(folder, ids=names, kind="images")
    (folder / names[0]).unlink()
    with pytest.raises(RunError, match=r"there is no file .*1 é\.png any more"):
        export(run, "fiftyone")


def test_a_run_without_suspects_has_nothing_to_export(make_run, texts):
    run = make_run(texts, text="text")
    run.samples.assign(flagged=False).to_parquet(run.path / "samples.parquet", index=False)
    with pytest.raises(InputError, match="has no suspects to export"):
        export(Run(run.path), "label-studio")
