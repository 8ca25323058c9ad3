import base64
import json
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from stepe import Run, RunError
from stepe.report.html import comparison, duration, headline, render, share, size, suspicion, write_report

VOID = {"meta", "img", "br", "link", "input"}


class Page(HTMLParser):
    """A page taken apart; a tag that is closed out of turn is an error."""

    def __init__(self, html: str):
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
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
        if self._open and self._open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

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
    shutil.copytree(run.path, to)
    return to


def test_the_headline_says_how_many_labels_look_wrong(digits_run: Run, digits_page: Page) -> None:
    flagged = len(digits_run.issues)
    assert headline(digits_run) == f"{flagged:,} of 1,438 labels look wrong ({flagged / 1438:.0%})."
    assert headline(digits_run) in digits_page.text


def test_a_method_that_drops_nothing_says_so(plain_run: Run) -> None:
    page = Page(render(plain_run))
    assert "Plain drops nothing, so it does not say which of the 1,438 labels look wrong." in page.text
    assert not {"suspects", "classes", "comparison", "chart-kept", "chart-turnover"} & set(page.ids)
    assert "chart-accuracy" in page.ids


@pytest.mark.parametrize(
    ("rate", "headline", "cautious"),
    [
        ({"rate": 0.0, "low": 0.0, "high": 1.0}, "Too little was learned to say which of the 1,438 labels look", False),
        ({"rate": 0.0, "low": 0.0, "high": 0.02}, "None of the 1,438 labels looks wrong.", True),
    ],
)
def test_an_estimate_decides_what_no_flags_mean(rate, headline, cautious, plain_run, tmp_path: Path) -> None:
    path = copied(plain_run, tmp_path / "run")
    summary = json.loads((path / "summary.json").read_text())
    (path / "summary.json").write_text(json.dumps(summary | {"noise_rate": rate}))
    page = render(Run(path))
    assert headline in page
    assert ("own mistakes can pass for wrong labels" in page) == cautious
    assert "drops nothing" not in page


def test_one_label_looks_and_none_looks(digits_run: Run, tmp_path: Path) -> None:
    path = copied(digits_run, tmp_path / "run")
    for flagged, said in (
        (1, "1 of 1,438 labels looks wrong (0.1%)."),
        (0, "None of the 1,438 labels looks wrong."),
    ):
        (path / "summary.json").write_text(json.dumps(digits_run.summary | {"flagged": flagged}))
        assert headline(Run(path)) == said


def test_the_page_has_every_section(digits_page: Page) -> None:
    assert {"comparison", "suspects", "classes", "training", "about", "what"} <= set(digits_page.ids)
    charts = {str(name) for name in digits_page.ids if str(name).count("-") == 1 and str(name).startswith("chart-")}
    assert charts == {f"chart-{name}" for name in ("accuracy", "loss", "kept", "turnover", "losses", "detection")}


def test_ids_are_unique_and_links_within_the_page_lead_somewhere(digits_page: Page) -> None:
    assert len(set(digits_page.ids)) == len(digits_page.ids)
    targets = [str(link["href"]) for link in digits_page.all("a") + digits_page.all("use")]
    assert {target[1:] for target in targets if target.startswith("#")} <= set(digits_page.ids)


@pytest.mark.parametrize("name", ["digits_run", "features_run", "plain_run", "fitted_run"])
def test_nothing_comes_from_elsewhere_and_nothing_runs(name: str, request: pytest.FixtureRequest) -> None:
    html = render(request.getfixturevalue(name))
    page = Page(html)
    assert "http://" not in html
    assert "https://" not in html
    assert not {"script", "link", "iframe", "object", "embed", "base"} & {tag for tag, _ in page.tags}
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
    assert [row[0] for row in table.rows] == ["step-e", "oracle", "plain"]
    cells = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert cells["step-e"]["Test accuracy"] == f"{100 * digits_run.summary['test_accuracy']:.1f}%"
    assert cells["step-e"]["F1 flagged"] == f"{100 * digits_run.summary['noise']['flagged']['f1']:.1f}%"
    assert cells["plain"]["F1 dropped"] == "–"
    assert cells["plain"]["AUROC"].endswith("%")
    assert cells["oracle"]["AUROC"] == "–"
    assert "plain training on the clean labels" in digits_page.text


def test_without_a_truth_what_needs_one_is_left_out(features_run: Run, features_page: Page) -> None:
    assert "chart-detection" not in features_page.ids
    assert "AUROC" not in features_page.text
    assert "corrupted" not in features_page.text
    assert comparison([features_run]).columns == ["Method", "Test accuracy", "Flagged", "Seconds"]


def test_accuracy_against_untrusted_labels_says_so(features_page: Page, digits_page: Page) -> None:
    assert "against held-out labels that may be wrong too" in features_page.text
    assert "may be wrong too" not in digits_page.text


def test_suspects_are_shown_as_pictures_in_the_order_of_their_rank(digits_run: Run, digits_page: Page) -> None:
    pictures = digits_page.all("img")
    assert len(pictures) == min(60, len(digits_run.issues))
    assert {image["class"] for image in pictures} == {"pixelated"}
    first = digits_run.issues.iloc[0]
    assert pictures[0]["alt"] == f"Sample {first['id']}, labelled {first['given_label']}"
    assert base64.b64decode(str(pictures[0]["src"]).split(",")[1]) == digits_run.exhibits[first["row"]].picture


def test_suspects_without_pictures_are_rows_of_a_table(features_run: Run, features_page: Page) -> None:
    assert not features_page.all("img")
    assert "suspect-rows" in [table.get("class") for table in features_page.all("table")]
    for issue in features_run.issues.to_dict("records"):
        assert issue["reason"] in features_page.text


def test_a_suspect_without_a_suggestion_gets_a_question_mark(features_run: Run, tmp_path: Path) -> None:
    path = copied(features_run, tmp_path / "run")
    features_run.samples.assign(suggested_label="").to_parquet(path / "samples.parquet")
    page = Page(render(Run(path)))
    assert "→ might be ?" in page.text
    assert "Most frequent confusions" not in page.text


def test_a_run_without_test_data_or_request_has_a_report(fitted_run: Run) -> None:
    page = Page(write_report(fitted_run).read_text(encoding="utf-8"))
    assert "Test accuracy" not in page.text
    assert "chart-losses" in page.ids


def test_table_headers_say_what_they_head(digits_page: Page, features_page: Page) -> None:
    for page in (digits_page, features_page):
        assert {header.get("scope") for header in page.all("th")} == {"col", "row"}
        assert all(figure.get("aria-label") for figure in page.all("div") if figure.get("role") == "img")


def test_an_unfinished_run_is_refused(digits_run: Run, tmp_path: Path) -> None:
    path = copied(digits_run, tmp_path / "run")
    (path / "summary.json").unlink()
    with pytest.raises(RunError, match="not finished"):
        write_report(Run(path))


def test_numbers_are_written_for_people() -> None:
    assert [share(x) for x in (0, 0.0042, 0.0955, 0.393, 1)] == ["0%", "0.4%", "9.6%", "39%", "100%"]
    assert [suspicion(x) for x in (0.99999, 1.0, float("nan"))] == ["0.999", "1.000", "–"]
    assert [duration(x) for x in (0.2, 14.7, 150, 4000)] == ["under a second", "15 s", "2 min 30 s", "1 h 6 min"]
    assert [size(x) for x in (540, 999, 1531, 78781, 3_400_000_000)] == ["540 B", "999 B", "1.5 kB", "79 kB", "3.4 GB"]
