"""The suspects inside the page: what is shown of them, and that it stays small."""

import base64
import functools
import io
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from stepe import Run
from stepe.report.html import render
from stepe.report.suspects import BUDGET, all_names, embedded, looks, size_of, suspects
from stepe.run.previews import Preview, encoded


@functools.cache
def picture(side: int, seed: int = 0) -> bytes:
    """A picture as hard to compress as any photo, and then some."""
    draw = np.random.default_rng(seed)
    coarse = Image.fromarray(draw.integers(0, 256, (side // 4, side // 4, 3), dtype=np.uint8))
    noise = draw.normal(0, 12, (side, side, 3))
    pixels = np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC)) + noise
    return encoded(Image.fromarray(pixels.clip(0, 255).astype(np.uint8)))


def test_suspects_are_the_top_of_the_list_in_numbers(digits_run: Run) -> None:
    found = suspects(digits_run)
    issues = digits_run.issues
    assert [suspect["id"] for suspect in found] == issues["id"].tolist()
    names = all_names(digits_run)
    for suspect, issue in zip(found, issues.to_dict("records"), strict=True):
        assert names[suspect["given"]] == issue["given_label"]
        assert names[suspect["suggested"]] == issue["suggested_label"]
        assert suspect["likely"][0] == suspect["suggested"]
        assert suspect["given"] not in suspect["likely"]
        assert suspect["suspicion"] == issue["suspicion"]
        stored = digits_run.previews[issue["row"]].picture
        assert base64.b64decode(suspect["picture"].partition(",")[2]) == stored
        assert suspect["pixels"] == 8


def test_where_few_are_flagged_the_next_in_line_follow(digits_run: Run, tmp_path) -> None:
    shutil.copytree(digits_run.path, tmp_path / "run")
    samples = digits_run.samples
    flagged = samples["flagged"] & (samples["rank"] <= 3)
    samples.assign(flagged=flagged).to_parquet(tmp_path / "run" / "samples.parquet")
    found = suspects(Run(tmp_path / "run"))
    assert [suspect["flagged"] for suspect in found] == [True] * 3 + [False] * 9
    assert all(suspect["suggested"] not in (-1, suspect["given"]) for suspect in found)


def test_a_run_that_learned_nothing_suspects_nobody(digits_run: Run, plain_run: Run, tmp_path) -> None:
    shutil.copytree(digits_run.path, tmp_path / "run")
    (tmp_path / "run" / "belief.npz").unlink()
    unknown = {"noise_rate": {"rate": 0.0, "low": 0.0, "high": 1.0}}
    (tmp_path / "run" / "summary.json").write_text(json.dumps(digits_run.summary.to_json() | unknown))
    assert suspects(Run(tmp_path / "run")) == []
    assert suspects(plain_run) == []


def test_a_suggestion_that_is_no_class_has_a_name_but_is_no_choice(digits_run: Run, tmp_path) -> None:
    shutil.copytree(digits_run.path, tmp_path / "run")
    digits_run.samples.assign(suggested_label="17").to_parquet(tmp_path / "run" / "samples.parquet")
    run = Run(tmp_path / "run")
    assert all_names(run)[-1] == "17"
    assert {suspect["suggested"] for suspect in suspects(run)} == {10}
    assert all(10 not in suspect["likely"] for suspect in suspects(run))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda i: Preview(i, picture=picture(32, i % 5)), id="small pictures"),
        pytest.param(lambda i: Preview(i, text="<ß>" * 666), id="texts"),
        pytest.param(lambda i: Preview(i, cells={f"column {k}": "w" * 300 for k in range(30)}), id="rows"),
    ],
)
def test_a_thousand_suspects_stay_within_the_budget(make) -> None:
    found = looks([make(i) for i in range(1000)])
    assert all(found)
    assert sum(map(size_of, found)) <= BUDGET


def test_should_those_that_are_tried_be_small_the_last_go_without() -> None:
    found = looks([Preview(i, text="short" if i % 16 == 0 else "<" * 2000) for i in range(1000)])
    assert sum(map(size_of, found)) <= BUDGET
    assert all(found[:300])
    assert not any(found[-300:])


def test_a_report_of_a_thousand_photos_can_be_sent_by_mail(digits_run: Run, tmp_path) -> None:
    shutil.copytree(digits_run.path, tmp_path / "run")
    digits_run.samples.assign(flagged=digits_run.samples["split"] == "train").to_parquet(
        tmp_path / "run" / "samples.parquet"
    )
    run = Run(tmp_path / "run")
    run.__dict__["previews"] = {row: Preview(row, picture=picture(160, row % 5)) for row in run.issues["row"]}
    html = render(run)
    assert html.count("data:image/webp") == 1000 + 12
    assert len(html.encode()) < 5_000_000


def test_few_suspects_keep_all_detail() -> None:
    content = picture(160)
    (pictured, written) = looks([Preview(0, picture=content), Preview(1, text="x" * 2000)])
    assert base64.b64decode(pictured["picture"].partition(",")[2]) == content
    assert pictured["pixels"] == 160
    assert written == {"text": "x" * 2000}


def test_many_photos_become_smaller_pictures(monkeypatch) -> None:
    monkeypatch.setattr("stepe.report.suspects.BUDGET", 40_000)
    found = looks([Preview(i, picture=picture(160, i)) for i in range(10)])
    sides = {max(Image.open(io.BytesIO(base64.b64decode(look["picture"].partition(",")[2]))).size) for look in found}
    assert len(sides) == 1
    assert sides.pop() in (64, 80, 96, 112, 128)


def test_no_text_can_end_the_script_it_stands_in() -> None:
    nasty = ["</script><script>alert(1)</script>", "<!--", "\u2028\u2029", "a & b", "日本"]
    text = embedded(nasty)
    assert json.loads(text) == nasty
    assert not set("<>&\u2028\u2029") & set(text)
    assert "日本" in text
