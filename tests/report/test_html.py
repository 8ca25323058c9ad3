import base64
import hashlib
import json
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import stepe
from stepe import Run, RunError
from stepe.report.findings import headline
from stepe.report.html import classes, comparison, groups, render, write_report
from stepe.report.wording import duration, share, size, suspicion

VOID = {"meta", "img", "br", "link", "input"}


class Page(HTMLParser):
    """A page taken apart; a tag that is closed out of turn is an error."""

    def __init__(self, html: str):
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.scripts.append(data)
        elif self._open and self._open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).replace("\u2060", "").split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def ids(self) -> list[str | None]:
        return [attributes["id"] for _, attributes in self.tags if "id" in attributes]


@pytest.fixture(scope="module")
def digits_page(digits_run: Run) -> Page:
    return Page(render(digits_run))


@pytest.fixture(scope="module")
def features_page(features_run: Run) -> Page:
    return Page(render(features_run))


def copied(run: Run, to: Path) -> Path:
    """The run again, to be changed: its tables alone say what it holds of the labels."""
    shutil.copytree(run.path, to)
    (to / "belief.npz").unlink()
    return to


def test_the_headline_says_how_many_labels_look_wrong(digits_run: Run, digits_page: Page) -> None:
    flagged = len(digits_run.issues)
    assert headline(digits_run).startswith(f"{flagged:,} of 1,438 labels look wrong ({flagged / 1438:.0%})")
    assert headline(digits_run) in digits_page.text


def test_a_method_that_drops_nothing_says_so(plain_run: Run) -> None:
    page = Page(render(plain_run))
    assert "Plain drops nothing, so it does not say which of the 1,438 labels look wrong." in page.text
    assert not {"gallery", "classes", "comparison", "chart-kept", "chart-turnover"} & set(page.ids)
    assert "chart-accuracy" in page.ids


@pytest.mark.parametrize(
    ("rate", "headline", "cautious"),
    [
        ({"rate": 0.0, "low": 0.0, "high": 1.0}, "These rows say too little about their labels to tell which", False),
        ({"rate": 0.0, "low": 0.0, "high": 0.02}, "It may be that nothing is wrong: 0–2% of 1,438 labels; none", True),
    ],
)
def test_an_estimate_decides_what_no_flags_mean(rate, headline, cautious, plain_run, tmp_path: Path) -> None:
    path = copied(plain_run, tmp_path / "run")
    summary = json.loads((path / "summary.json").read_text())
    (path / "summary.json").write_text(json.dumps(summary | {"noise_rate": rate}))
    page = render(Run(path)).replace("\u2060", "")
    assert headline in page
    assert ("Add more rows, better features" in page) == (not cautious)
    assert ("own mistakes can pass for wrong labels" in page) == cautious
    assert "drops nothing" not in page


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        ([3], "hardly recognises 3: little is said about the labels of this class."),
        ([1, 3, 8], "hardly recognises 1, 3 and 8: little is said about the labels of these classes."),
        (list(range(8)), "hardly recognises 0, 1, 2, 3, 4 and 3 more: "),
    ],
)
def test_classes_that_were_not_learned_are_named(classes, said, digits_run: Run, tmp_path: Path) -> None:
    path = copied(digits_run, tmp_path / "run")
    (path / "summary.json").write_text(json.dumps(digits_run.summary.to_json() | {"hardly_recognised": classes}))
    assert said in render(Run(path))
    (path / "summary.json").write_text(json.dumps(digits_run.summary.to_json() | {"hardly_recognised": []}))
    assert "hardly recognises" not in render(Run(path))


def test_an_estimate_is_stated_with_its_range_and_where_the_flags_are(digits_run: Run, tmp_path: Path) -> None:
    path = copied(digits_run, tmp_path / "run")
    rate = {"rate": 0.081, "low": 0.06, "high": 0.104}
    (path / "summary.json").write_text(json.dumps(digits_run.summary.to_json() | {"noise_rate": rate, "flagged": 961}))
    samples = digits_run.samples
    for spread, clause in (
        ({"3": 60, "4": 10, "5": 10, "6": 10}, "; one class holds 67% of them"),
        ({"3": 30, "4": 30, "5": 10, "6": 10, "7": 10, "8": 10}, "; 2 classes hold 60% of them"),
        (dict.fromkeys("0123456789", 20), ""),
    ):
        place = samples.groupby("given_label").cumcount()
        flagged = (place < samples["given_label"].map(spread).fillna(0)) & (samples["split"] == "train")
        samples.assign(flagged=flagged).to_parquet(path / "samples.parquet")
        said = headline(Run(path))
        assert said == f"About 8% of 1,438 labels look wrong (6–10%); 961 flagged{clause}."


def test_one_label_looks_and_none_looks(digits_run: Run, tmp_path: Path) -> None:
    path = copied(digits_run, tmp_path / "run")
    for flagged, said in (
        (1, "1 of 1,438 labels looks wrong (0.1%)."),
        (0, "None of the 1,438 labels looks wrong."),
    ):
        digits_run.samples.assign(flagged=digits_run.samples["rank"] <= flagged).to_parquet(path / "samples.parquet")
        (path / "summary.json").write_text(json.dumps(digits_run.summary.to_json() | {"flagged": flagged}))
        assert headline(Run(path)) == said


def test_the_page_has_every_section(digits_page: Page) -> None:
    assert {"comparison", "gallery", "classes", "training", "about"} <= set(digits_page.ids)
    charts = {str(figure["id"]) for figure in digits_page.all("figure")}
    names = ("noise", "accuracy", "loss", "kept", "turnover", "losses", "detection")
    assert charts == {f"chart-{name}" for name in names}
    for chart in digits_page.all("div"):
        if "data-readings" in chart:
            assert json.loads(str(chart["data-readings"]))["stops"]


def test_ids_are_unique_and_links_within_the_page_lead_somewhere(digits_page: Page) -> None:
    assert len(set(digits_page.ids)) == len(digits_page.ids)
    targets = [str(link["href"]) for link in digits_page.all("a") + digits_page.all("use")]
    assert {target[1:] for target in targets if target.startswith("#")} <= set(digits_page.ids)


@pytest.mark.parametrize("name", ["digits_run", "features_run", "plain_run", "fitted_run", "audited_run"])
def test_nothing_comes_from_elsewhere_and_only_the_pages_own_script_runs(
    name: str, request: pytest.FixtureRequest
) -> None:
    html = render(request.getfixturevalue(name))
    page = Page(html)
    assert "http://" not in html
    assert "https://" not in html
    assert not {"link", "iframe", "object", "embed", "base"} & {tag for tag, _ in page.tags}
    assert page.all("script") == [{"type": "application/json", "id": "data"}, {}]
    policy = next(str(meta["content"]) for meta in page.all("meta") if "http-equiv" in meta)
    digest = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert "innerHTML" not in page.scripts[1]
    assert all(str(image["src"]).startswith("data:image/") for image in page.all("img"))
    assert not [key for _, attributes in page.tags for key in attributes if key.startswith("on")]
    assert "default-src 'none'" in html
    assert len(html) < 1_000_000


def test_names_from_the_data_are_text(features_run: Run, features_page: Page) -> None:
    assert "<script>alert(1)</script>" in features_run.class_names
    for name in features_run.class_names:
        assert name in features_page.text
    assert not features_page.all("b")


def test_the_same_run_gives_the_same_report(digits_run: Run) -> None:
    first = write_report(digits_run).read_bytes()
    assert write_report(Run(digits_run.path)).read_bytes() == first
    assert digits_run.report() == digits_run.path / "report.html"


def test_other_methods_stand_beside_this_one(digits_run: Run, digits_page: Page) -> None:
    table = comparison([digits_run, *digits_run.others])
    assert [row[0] for row in table.rows] == ["step-e-plus", "oracle", "plain"]
    cells = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert cells["step-e-plus"]["Test accuracy"] == f"{100 * digits_run.summary.test_accuracy:.1f}%"
    assert cells["step-e-plus"]["F1 flagged"] == f"{100 * digits_run.summary.noise.flagged.f1:.1f}%"
    assert cells["plain"]["F1 dropped"] == "–"
    assert cells["plain"]["AUROC"].endswith("%")
    assert cells["oracle"]["AUROC"] == "–"
    plain = next(run.summary.seconds for run in digits_run.others if run.method == "plain")
    assert cells["plain"]["Time, plain = 1"] == "1.00"
    assert cells["step-e-plus"]["Time, plain = 1"] == f"{digits_run.summary.seconds / plain:.2f}"
    assert "plain training on the clean labels" in digits_page.text


def test_without_a_truth_what_needs_one_is_left_out(features_run: Run, features_page: Page) -> None:
    assert "chart-detection" not in features_page.ids
    assert "AUROC" not in features_page.text
    assert "corrupted" not in features_page.text
    assert comparison([features_run]).columns == ["Method", "Test accuracy", "Flagged", "Seconds"]


def test_accuracy_against_untrusted_labels_says_so(features_page: Page, digits_page: Page) -> None:
    assert "by labels that may be wrong too" in features_page.text
    assert "may be wrong too" not in digits_page.text


def test_accuracy_stands_with_and_without_cleaning(digits_run: Run, digits_page: Page, features_page: Page) -> None:
    measured = {run.method: f"{100 * run.summary.test_accuracy:.1f}%" for run in (digits_run, *digits_run.others)}
    words = {"step-e-plus": "with cleaning", "plain": "without cleaning", "oracle": "with clean labels"}
    for method, said in words.items():
        assert f"{said} {measured[method]}" in digits_page.text
    assert "with cleaning" in features_page.text
    assert "without cleaning" not in features_page.text


def test_twelve_suspects_are_in_plain_sight_in_the_order_of_their_rank(digits_run: Run, digits_page: Page) -> None:
    pictures = digits_page.all("img")
    assert len(pictures) == 12
    assert {image["class"] for image in pictures} == {"pixelated"}
    for image, issue in zip(pictures, digits_run.issues.to_dict("records"), strict=False):
        assert image["alt"] == f"Sample {issue['id']}, labelled {issue['given_label']}"
        content = base64.b64decode(str(image["src"]).partition(",")[2])
        assert content == digits_run.previews[issue["row"]].picture


def test_all_suspects_are_there_for_the_gallery(digits_run: Run, digits_page: Page, features_page: Page) -> None:
    data = json.loads(digits_page.scripts[0])
    assert [suspect["row"] for suspect in data["suspects"]] == digits_run.issues["row"].tolist()
    assert data["names"] == digits_run.class_names
    assert data["run"] == digits_run.digest
    assert data["run"] != json.loads(features_page.scripts[0])["run"]


def test_features_are_shown_by_their_id_alone(features_run: Run, features_page: Page) -> None:
    assert not features_page.all("img")
    tiles = [link for link in features_page.all("a") if "data-row" in link]
    assert [int(str(tile["data-row"])) for tile in tiles][:3] == features_run.issues["row"].tolist()[:3]


@pytest.mark.parametrize(("kind", "layout"), [("text", {"text": "words"}), ("cells", {})])
def test_texts_and_rows_are_shown_as_they_were_given(kind: str, layout: dict[str, str], tmp_path: Path) -> None:
    frame = pd.DataFrame({"words": [f"<i>{'cat' if i % 2 else 'dog'}</i> {i % 7}" for i in range(80)], "size": "1 < 2"})
    label = np.where(np.arange(80) % 8 == 0, "cat", np.where(np.arange(80) % 2, "cat", "dog"))
    options = {"rho_max": 0.2, "probe": "in-sample", "epochs": 20, "device": "cpu"}
    run = stepe.clean(frame.assign(label=label), label="label", out=tmp_path / "run", **options, **layout)
    page = Page(render(run))
    (tiles,) = [block for block in page.all("ol") if "tiles" in str(block["class"])]
    assert tiles["class"] == f"tiles {kind}"
    row = run.issues["row"].iloc[0]
    assert frame["words"][row] in page.text
    assert ("1 < 2" in page.text) == (kind == "cells")
    assert not page.all("i")


def test_a_suspect_without_a_suggestion_gets_a_question_mark(features_run: Run, tmp_path: Path) -> None:
    path = copied(features_run, tmp_path / "run")
    features_run.samples.assign(suggested_label="").to_parquet(path / "samples.parquet")
    page = Page(render(Run(path)))
    assert "→ might be ?" in page.text
    assert "Most frequent confusions" not in page.text
    assert {suspect["suggested"] for suspect in json.loads(page.scripts[0])["suspects"]} == {-1}


def test_a_run_without_test_data_or_request_has_a_report(fitted_run: Run) -> None:
    page = Page(write_report(fitted_run).read_text(encoding="utf-8"))
    assert "Test accuracy" not in page.text
    assert "chart-losses" in page.ids


def test_classes_are_ordered_by_their_share_of_suspects(digits_run: Run) -> None:
    found = classes(digits_run)
    shares = [row.flagged_share for row in found]
    assert shares == sorted(shares, reverse=True)
    assert sum(row.flagged for row in found) == len(digits_run.issues)
    assert sum(row.dropped for row in found) == digits_run.summary.dropped
    assert sum(row.samples for row in found) == 1438
    assert {row.name for row in found} == set(digits_run.class_names)
    held_out = digits_run.samples[digits_run.samples["split"] == "test"]
    of_three = held_out[held_out["given_label"] == "3"]
    (three,) = [row for row in found if row.name == "3"]
    assert three.accuracy == (of_three["suggested_label"] == "3").mean()


def test_groups_are_shown_where_there_are_any(digits_run: Run, digits_page: Page, tmp_path: Path) -> None:
    assert groups(digits_run) == []
    assert "Dropped by group" not in digits_page.text
    path = copied(digits_run, tmp_path / "run")
    samples = digits_run.samples
    who = np.where(samples["dropped"], "<u>", np.where(samples.index % 2, "odd", "even"))
    samples.assign(group=who).to_parquet(path / "samples.parquet")
    first, *others = groups(Run(path))
    assert (first.name, first.dropped_share) == ("<u>", 1.0)
    assert [row.dropped for row in others] == [0, 0]
    page = Page(render(Run(path)))
    assert "Dropped by group" in page.text
    assert not page.all("u")


def test_table_headers_say_what_they_head(digits_page: Page, features_page: Page) -> None:
    for page in (digits_page, features_page):
        assert {header.get("scope") for header in page.all("th")} == {"col", "row"}
        assert all(figure.get("aria-label") for figure in page.all("div") if figure.get("role") == "img")


def test_an_unfinished_run_is_refused(digits_run: Run, tmp_path: Path) -> None:
    path = copied(digits_run, tmp_path / "run")
    (path / "summary.json").unlink()
    with pytest.raises(RunError, match="not finished"):
        write_report(Run(path))


@pytest.mark.parametrize(("name", "content"), [("summary.json", "{"), ("history.jsonl", "")])
def test_a_damaged_run_is_refused_and_the_file_named(digits_run: Run, tmp_path: Path, name: str, content: str) -> None:
    path = copied(digits_run, tmp_path / "run")
    (path / name).write_text(content)
    with pytest.raises(RunError, match=rf"{name} .*; make the run again"):
        write_report(Run(path))


def test_numbers_are_written_for_people() -> None:
    assert [share(x) for x in (0, 0.0042, 0.0955, 0.393, 1)] == ["0%", "0.4%", "9.6%", "39%", "100%"]
    assert [suspicion(x) for x in (0.99999, 1.0, float("nan"))] == ["0.999", "1.000", "–"]
    assert [duration(x) for x in (0.2, 14.7, 150, 4000)] == ["under a second", "15 s", "2 min 30 s", "1 h 6 min"]
    assert [size(x) for x in (540, 999, 1531, 78781, 3_400_000_000)] == ["540 B", "999 B", "1.5 kB", "79 kB", "3.4 GB"]


# ---------------------------------------------------------------------------------------------------------------
# A run of judges, which train no network


def test_a_run_of_judges_has_the_charts_for_which_it_has_numbers(audited_run: Run) -> None:
    page = Page(render(audited_run))
    assert [figure["id"] for figure in page.all("figure")] == ["chart-noise", "chart-kept"]
    assert {"gallery", "classes", "training", "about"} <= set(page.ids)
    assert "How the audit went" in page.text
    assert "Learned from and dropped" in page.text
    for word in ("epoch ", "While training", "warm-up", "90% range", "Test accuracy"):
        assert word not in page.text


def test_a_run_of_judges_that_dropped_nothing_has_a_report_too(audited_run: Run, tmp_path: Path) -> None:
    path = Path(shutil.copytree(audited_run.path, tmp_path / "run"))
    row = audited_run.history[0] | {"dropped": 0}
    (path / "history.jsonl").write_text(json.dumps(row) + "\n")
    page = Page(render(Run(path)))
    assert [figure["id"] for figure in page.all("figure")] == ["chart-noise"]
    assert "1 round, " in page.text


def test_judges_are_named_with_how_much_each_counted(audited_run: Run) -> None:
    run = Run(audited_run.path)
    object.__setattr__(run.summary, "panel", {"ranks": 0.11, "forest": 0.28, "kernel": 0.61, "linear": 0.0})
    object.__setattr__(run.summary, "agreement", 0.913)
    page = Page(render(run))
    assert "Judged by: kernel 61%, forest 28%, ranks 11%" in page.text
    assert "linear" not in page.text
    assert "91.3% agreement with the given labels" in page.text
    assert "accuracy" not in page.text.lower()


def test_runs_of_judges_and_of_networks_are_compared(audited_run: Run, digits_run: Run) -> None:
    table = comparison([audited_run, digits_run])
    assert [row[table.columns.index("Flagged")] for row in table.rows] == ["40", f"{len(digits_run.issues):,}"]
