"""The report in a real browser: what is seen at once, sorting and filtering, reviewing without a server."""

import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import stepe
from stepe import Run
from stepe.report.wording import visible
from stepe.review.reviewed import apply_reviewed
from stepe.review.sample import sample_order
from stepe.run.decisions import Action, Decision
from stepe.tables.cells import unescape

HOSTILE = (
    '<img src=x onerror="document.title=1">',
    "=1+1",
    "'@quoted ",
    "שלום עולם (abc)",
    "very long " + "x" * 300,
    '"comma, quote" <script>document.title=2</script>',
)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Pictures, planted noise, and plain training and the oracle beside it."""
    return stepe.clean("digits", epochs=4, out=tmp_path_factory.mktemp("runs") / "digits", device="cpu")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Texts, classes and ids that mean harm, or are hard to show."""
    draw = np.random.default_rng(0)
    truth = draw.integers(0, len(HOSTILE), 360)
    label = np.where(draw.random(360) < 0.15, (truth + 1) % len(HOSTILE), truth)
    frame = pd.DataFrame(
        {
            "key": [f"=cmd|{i}" if i % 2 else f"<b>{i}</b>" for i in range(360)],
            "text": [f"<u>word{k} word{k} theme{k}</u> {draw.integers(9)}" for k in truth],
            "label": [HOSTILE[k] for k in label],
        }
    )
    out = tmp_path_factory.mktemp("runs") / "hostile"
    layout = {"label": "label", "text": "text", "id": "key"}
    return stepe.clean(frame, **layout, rho_max=0.2, probe="in-sample", epochs=8, out=out, device="cpu")


@pytest.fixture(scope="module")
def wordy(hostile: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same, with as much to say as there can be."""
    path = tmp_path_factory.mktemp("runs") / "wordy"
    shutil.copytree(hostile.path, path)
    found = {"precision": 0.98, "recall": 0.97, "f1": 0.97}
    noise = {"noisy": 43_210, "auroc": 0.99, "dropped": found, "flagged": found}
    rate = {"rate": 0.126, "low": 0.1, "high": 0.153}
    (path / "belief.npz").unlink()
    changed = {"noise_rate": rate, "noise": noise, "samples": 12_345_678, "flagged": 1_234_567}
    summary = hostile.summary.to_json() | changed
    (path / "summary.json").write_text(json.dumps(summary))
    (path / "history.jsonl").write_text("".join(json.dumps(row | found) + "\n" for row in hostile.history))
    samples = hostile.samples
    flagged = samples["flagged"] & ((samples["given_label"] == HOSTILE[0]) | (samples["rank"] < 3))
    samples.assign(flagged=flagged).to_parquet(path / "samples.parquet")
    Run(path).report()
    return Run(path)


def report(run: Run) -> Path:
    return run.path / "report.html"


def rows_shown(page: Any) -> list[int]:
    """Rows of the cards, after scrolling brought all of them."""
    wanted = int(page.locator("#shown").inner_text().split()[0].replace(",", ""))
    page.wait_for_function(
        """wanted => {
            document.getElementById("gallery-end").scrollIntoView();
            return document.querySelectorAll(".card").length === wanted;
        }""",
        arg=wanted,
    )
    return [int(row) for row in page.locator(".card").evaluate_all("cards => cards.map((card) => card.dataset.row)")]


def wait_focused(page: Any, row: int) -> None:
    page.wait_for_function("row => document.activeElement.dataset.row === String(row)", arg=row)


# ---------------------------------------------------------------------------------------------------------------
# At first sight


@pytest.mark.parametrize("name", ["digits", "hostile"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_opens_without_an_error_and_without_any_request(name, scheme, request, open_page) -> None:
    run = request.getfixturevalue(name)
    opened = open_page(report(run), color_scheme=scheme)
    rows_shown(opened.page)
    assert opened.errors == []
    assert opened.requests == [report(run).resolve().as_uri()]


@pytest.mark.parametrize("name", ["digits", "hostile", "wordy"])
def test_headline_and_twelve_suspects_are_in_the_first_screen(name, request, open_page) -> None:
    page = open_page(report(request.getfixturevalue(name))).page

    def bottom(selector: str) -> float:
        return page.locator(selector).evaluate_all(
            "all => Math.max(...all.map((e) => e.getBoundingClientRect().bottom))"
        )

    assert page.locator(".tiles li").count() == 12
    for selector in ("h1", ".tiles li", ".accuracies", ".overview aside", ".strip"):
        assert page.locator(selector).first.is_visible()
        assert bottom(selector) <= 800
    assert page.evaluate("scrollY") == 0


@pytest.mark.parametrize("name", ["digits", "hostile"])
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_nothing_sticks_out_at_the_side(name, width, request, open_page) -> None:
    page = open_page(report(request.getfixturevalue(name)), width=width, height=844).page
    rows_shown(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_class_names_stay_text(hostile, open_page) -> None:
    opened = open_page(report(hostile))
    rows_shown(opened.page)
    title = opened.page.title()
    assert title.startswith("table, step-e-plus: ")
    page = opened.page
    assert page.locator("img, main u, main b:not(.text b), main script").count() == 0
    names = set(hostile.issues["given_label"]) | set(hostile.issues["suggested_label"])
    shown = set(page.locator(".card .labels bdi").evaluate_all("all => all.map((e) => e.textContent)"))
    assert shown == {visible(name) for name in names}
    assert "'@quoted␣" in page.inner_text(".tiles") + page.inner_text(".overview aside")
    assert "'@quoted␣" in page.inner_text("#classes")
    assert len(names & set(HOSTILE)) >= 5
    assert page.locator(".card bdi", has_text=HOSTILE[4]).first.bounding_box()["width"] < 500


def test_without_scripts_the_first_screen_and_the_charts_are_there(digits, open_page) -> None:
    page = open_page(report(digits), java_script_enabled=False).page
    assert page.locator(".tiles li").count() == 12
    assert page.locator("figure svg").count() == 7
    assert page.locator("noscript").first.is_visible()


def test_it_prints(digits, open_page) -> None:
    page = open_page(report(digits)).page
    page.emulate_media(media="print")
    assert not page.locator(".toolbar").is_visible()
    assert page.locator(".tiles li").first.is_visible()
    assert page.pdf().startswith(b"%PDF")


# ---------------------------------------------------------------------------------------------------------------
# The gallery


def test_cards_are_made_until_the_screen_is_full_however_large_it_is(digits, open_page) -> None:
    page = open_page(report(digits), height=12_000).page
    page.wait_for_function("() => document.getElementById('gallery-end').getBoundingClientRect().top > innerHeight")
    assert page.locator(".card").count() > 60


def test_suspects_can_be_sorted(digits, open_page) -> None:
    page = open_page(report(digits)).page
    issues = digits.issues
    ranked = issues["row"].tolist()
    assert rows_shown(page) == ranked
    page.select_option("#by-order", "suspicion")
    suspicion = dict(zip(issues["row"], issues["suspicion"], strict=True))
    ascending = [suspicion[row] for row in rows_shown(page)]
    assert ascending == sorted(ascending)
    page.select_option("#by-order", "given")
    by_class = issues.sort_values(["given_label", "rank"])["row"].tolist()
    assert rows_shown(page) == by_class
    page.select_option("#by-order", "pair")
    count = issues.groupby(["given_label", "suggested_label"])["row"].transform("size")
    by_row = dict(zip(issues["row"], count, strict=True))
    frequencies = [by_row[row] for row in rows_shown(page)]
    assert frequencies == sorted(frequencies, reverse=True)


def test_suspects_can_be_filtered_by_class_pair_and_words(digits, hostile, open_page) -> None:
    page = open_page(report(digits)).page
    issues = digits.issues

    page.select_option("#by-given", "3")
    assert rows_shown(page) == issues[issues["given_label"] == "3"]["row"].tolist()
    page.click("#clear")
    assert len(rows_shown(page)) == len(issues)

    link = page.locator("aside a[data-suggested]").first
    given, suggested = link.get_attribute("data-given"), link.get_attribute("data-suggested")
    link.click()
    pair = issues[(issues["given_label"] == given) & (issues["suggested_label"] == suggested)]
    assert rows_shown(page) == pair["row"].tolist()
    assert page.locator("#gallery").evaluate("e => e.getBoundingClientRect().top") < 100

    page.locator("aside a[data-given]:not([data-suggested])").first.click()
    worst = page.locator("#by-given").input_value()
    assert rows_shown(page) == issues[issues["given_label"] == worst]["row"].tolist()

    page = open_page(report(hostile)).page
    found = hostile.issues["id"].iloc[-1]
    page.fill("#by-search", found.upper())
    assert hostile.issues["row"].iloc[-1] in rows_shown(page)
    page.fill("#by-search", "no such thing")
    assert rows_shown(page) == []
    assert page.locator("#nobody").is_visible()


def test_a_suspect_of_the_first_screen_leads_to_its_card(digits, open_page) -> None:
    page = open_page(report(digits)).page
    row = int(digits.issues["row"].iloc[5])
    page.locator(f".tiles a[data-row='{row}']").click()
    wait_focused(page, row)
    box = page.locator(f".card[data-row='{row}']").bounding_box()
    assert 0 <= box["y"] <= 800 - box["height"]


def test_arrows_lead_through_the_gallery_and_past_what_was_made_so_far(digits, open_page) -> None:
    page = open_page(report(digits)).page
    ranked = [int(row) for row in digits.issues["row"]]
    page.click("#begin")
    wait_focused(page, ranked[0])
    page.keyboard.press("ArrowRight")
    wait_focused(page, ranked[1])
    tops = page.locator(".card").evaluate_all("cards => cards.map((card) => card.offsetTop)")
    page.keyboard.press("ArrowDown")
    wait_focused(page, ranked[1 + tops.count(tops[0])])
    page.keyboard.press("End")
    wait_focused(page, ranked[-1])
    page.keyboard.press("Home")
    wait_focused(page, ranked[0])


# ---------------------------------------------------------------------------------------------------------------
# Where to cut


@pytest.fixture(scope="module")
def graded(digits: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same pictures, suspicious in all degrees; forty of the flagged were drawn at random."""
    path = tmp_path_factory.mktemp("runs") / "graded"
    shutil.copytree(digits.path, path)
    samples = digits.samples
    training = samples["split"] == "train"
    doubted = samples["flagged"] & training
    place = samples["suspicion"].where(doubted).rank(method="first", pct=True)  # of each flagged one among them
    suspicion = np.where(doubted, 0.501 + 0.498 * place**2, samples["suspicion"] / 2)
    samples = samples.assign(suspicion=suspicion, flagged=(suspicion > 0.5) & training)
    samples.to_parquet(path / "samples.parquet", index=False)
    run = Run(path)
    order = sample_order(run, run.issues["row"])
    drawn = sorted(order, key=order.__getitem__)[:40]
    made = (Decision("train", row, "unsure" if i == 0 else "accepted", None, "sample") for i, row in enumerate(drawn))
    run.decisions.record(Action("drawn", tuple(made)))
    Run(path).report()
    return Run(path)


def press(page: Any, key: str, times: int = 1) -> None:
    page.focus("#by-cut")
    for _ in range(times):
        page.keyboard.press(key)


def test_a_cut_filters_the_suspects_and_says_how_many_labels_lie_above_it(graded, open_page) -> None:
    opened = open_page(report(graded))
    page, issues = opened.page, graded.issues
    assert page.locator("#by-cut").input_value() == "50"
    assert page.inner_text("#above") == f"{len(issues)} labels are more likely wrong than right: these are flagged."
    assert len(rows_shown(page)) == len(issues)
    press(page, "ArrowRight", 20)
    above = issues[issues["suspicion"] >= 0.7]
    assert 20 < len(above) < len(issues)
    assert page.inner_text("#above") == f"{len(above)} labels are wrong with a probability of 0.70 or more."
    assert page.locator("#by-cut").get_attribute("aria-valuetext") == "0.70"
    assert page.inner_text("#cut-command") == "stepe cleaned RUN --min-suspicion 0.70"
    assert page.locator("#suspicions .above").count() == 30
    assert rows_shown(page) == above["row"].tolist()
    page.click("#clear")
    assert len(rows_shown(page)) == len(issues)
    assert page.locator("#by-cut").input_value() == "50"
    assert opened.errors == []


def test_below_the_runs_own_cut_all_labels_are_counted_and_the_flagged_are_listed(graded, open_page) -> None:
    page = open_page(report(graded)).page
    press(page, "Home")
    n, flagged = graded.summary.samples, len(graded.issues)
    said = f"{n:,} labels are wrong with a probability of 0.00 or more. {flagged} of them are listed below."
    assert page.inner_text("#above") == said
    assert page.inner_text("#expected") == "Review 20 at random to know how many of them are really wrong."
    press(page, "End")
    assert page.inner_text("#above") == "0 labels are wrong with a probability of 1.00 or more."
    assert page.inner_text("#expected") == ""
    assert rows_shown(page) == []


def test_a_precision_is_claimed_only_where_enough_were_reviewed_at_random(graded, digits, open_page) -> None:
    page = open_page(report(graded)).page
    assert page.inner_text("#expected") == (
        "94–100% of them are really wrong (90% range): 39 of 39 reviewed at random were."
    )
    press(page, "End")
    press(page, "ArrowLeft", 24)
    assert page.inner_text("#expected") == "Review 20 at random to know how many of them are really wrong."
    page = open_page(report(digits)).page
    known = f"{100 * digits.summary.noise.flagged.precision:.1f}%"
    assert page.inner_text("#expected") == f"{known} of them are really wrong: the truth is known here."


def test_a_suspect_of_the_first_screen_is_found_behind_a_cut(graded, open_page) -> None:
    page = open_page(report(graded)).page
    press(page, "End")
    row = int(graded.issues["row"].iloc[2])
    page.locator(f".tiles a[data-row='{row}']").click()
    wait_focused(page, row)
    assert page.locator("#by-cut").input_value() == "50"


# ---------------------------------------------------------------------------------------------------------------
# Charts


def test_values_can_be_read_off_a_chart_by_pointer_and_by_key(digits, open_page) -> None:
    page = open_page(report(digits)).page
    tip = page.locator("#chart-accuracy .tip")
    drawing = page.locator("#chart-accuracy [role=img]")
    drawing.scroll_into_view_if_needed()
    box = drawing.bounding_box()
    assert not tip.is_visible()
    page.mouse.move(box["x"] + 0.97 * box["width"], box["y"] + box["height"] / 2)
    told = f"step-e-plus{100 * digits.history[-1]['test_accuracy']:.1f}%"
    assert tip.inner_text().replace("\n", "").startswith("epoch 4")
    assert told in re.sub(r"\s", "", tip.inner_text())
    page.mouse.move(0, 0)
    assert not tip.is_visible()
    drawing.focus()
    page.keyboard.press("Home")
    assert tip.inner_text().startswith("epoch 1")
    page.keyboard.press("ArrowRight")
    assert tip.inner_text().startswith("epoch 2")


# ---------------------------------------------------------------------------------------------------------------
# Reviewing without a server


def exported(page: Any) -> list[dict[str, str]]:
    with page.expect_download() as download:
        page.click("#export")
    assert download.value.suggested_filename == "reviewed.csv"
    text = Path(download.value.path()).read_bytes().decode("utf-8")
    header, rows = text.partition("\n")[::2]
    assert header == "row,id,split,given_label,suggested_label,verdict,label"
    return list(csv.DictReader(io.StringIO(f"{header}\n{rows}", newline="")))


def test_what_the_report_exports_is_applied(hostile, open_page, tmp_path) -> None:
    page = open_page(report(hostile)).page
    page.click("#begin")
    first, second, third = hostile.issues.head(3).to_dict("records")
    for issue, key in ((first, "a"), (second, "k"), (third, "u")):
        wait_focused(page, issue["row"])
        page.keyboard.press(key)
    with page.expect_download() as download:
        page.click("#export")
    run = Run(shutil.copytree(hostile.path, tmp_path / "run"))
    assert apply_reviewed(run, Path(download.value.path())) == {"accepted": 1, "kept": 1, "unsure": 1}
    assert {key.row: decision.label for key, decision in run.decisions.current().items()} == {
        first["row"]: first["suggested_label"],
        second["row"]: second["given_label"],
        third["row"]: None,
    }


def test_decisions_survive_a_reload_and_are_exported(hostile, open_page) -> None:
    opened = open_page(report(hostile))
    page = opened.page
    issues = hostile.issues.to_dict("records")
    classes = hostile.class_names
    page.click("#begin")
    wait_focused(page, issues[0]["row"])
    page.keyboard.press("a")
    wait_focused(page, issues[1]["row"])
    page.keyboard.press("k")
    page.keyboard.press("u")
    wait_focused(page, issues[3]["row"])
    page.keyboard.press("a")
    page.keyboard.press("z")
    wait_focused(page, issues[3]["row"])
    page.keyboard.press("2")
    wait_focused(page, issues[4]["row"])
    page.keyboard.press("o")
    other = next(name for name in classes if name not in (issues[4]["given_label"], issues[4]["suggested_label"]))
    page.keyboard.type(other[:12])
    page.keyboard.press("Enter")
    wait_focused(page, issues[5]["row"])
    before = page.locator("#progress").inner_text()
    assert before.startswith(f"5 of {len(issues)} reviewed: 1 accepted, 2 relabelled, 1 kept, 1 unsure")
    assert "3 of 4 labels were wrong" in before

    page.reload()
    assert page.locator("#progress").inner_text() == before
    assert page.locator(".card[data-verdict='accepted']").count() == 1
    assert not page.locator("#not-kept").is_visible()
    rows = exported(page)
    assert opened.errors == []
    assert [int(row["row"]) for row in rows] == [issue["row"] for issue in issues[:5]]
    assert [row["verdict"] for row in rows] == ["accepted", "kept", "unsure", "relabelled", "relabelled"]
    for row, issue in zip(rows, issues, strict=False):
        assert row["split"] == "train"
        for name, column in (("id", "id"), ("given_label", "given_label"), ("suggested_label", "suggested_label")):
            assert unescape(row[name]) == issue[column]
            assert not re.match(r"[=+\-@\t\r\n]", row[name])
    labels = [unescape(row["label"]) for row in rows]
    assert labels[:3] == [issues[0]["suggested_label"], issues[1]["given_label"], ""]
    assert labels[3] not in (issues[3]["given_label"], issues[3]["suggested_label"])
    assert labels[3:] == [labels[3], other]


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("'@quoted", "''@quoted"),
        ("''-2", "'''-2"),
        ("'fine", "'fine"),
        ("a=b", "a=b"),
        ("\ttab", "'\ttab"),
        ('é, "x"', '"é, ""x"""'),
        ("two\nlines", '"two\nlines"'),
    ],
)
def test_every_name_can_be_told_from_its_cell(digits, open_page, name, cell) -> None:
    page = open_page(report(digits)).page
    assert page.evaluate("name => quoted(unformulated(name))", name) == cell
    (written,) = next(csv.reader(io.StringIO(cell, newline="")))
    assert unescape(written) == name


def test_choosing_the_given_label_keeps_it_and_the_suggested_one_accepts_it(hostile, open_page) -> None:
    page = open_page(report(hostile)).page
    first, second = hostile.issues.to_dict("records")[:2]
    page.click("#begin")
    for issue, side in ((first, "given_label"), (second, "suggested_label")):
        wait_focused(page, issue["row"])
        page.keyboard.press("o")
        page.fill("#choose-text", issue[side])
        page.keyboard.press("Enter")
    assert [row["verdict"] for row in exported(page)] == ["kept", "accepted"]


def test_buttons_do_what_keys_do(digits, open_page) -> None:
    page = open_page(report(digits)).page
    rows = digits.issues["row"].tolist()
    for row, button in zip(rows, ("accept", "keep", "unsure"), strict=False):
        page.locator(f".card[data-row='{row}'] button", has_text=button).click()
    assert [decision["verdict"] for decision in exported(page)] == ["accepted", "kept", "unsure"]
    page.click("#undo")
    assert page.locator(f".card[data-row='{rows[2]}']").get_attribute("data-verdict") == ""
    page.select_option("#by-decision", "decided")
    assert rows_shown(page) == rows[:2]


def test_decisions_belong_to_their_run_and_two_tabs_share_them(digits, hostile, browser, open_page) -> None:
    context = browser.new_context()
    try:
        first, second = (open_page(report(digits), context=context).page for _ in range(2))
        first.click("#begin")
        first.keyboard.press("a")
        second.wait_for_function("() => document.getElementById('progress').textContent.startsWith('1 of')")
        second.click("#begin")
        second.keyboard.press("k")
        first.wait_for_function("() => document.getElementById('progress').textContent.startsWith('2 of')")
        assert [row["verdict"] for row in exported(first)] == ["accepted", "kept"]
        other = open_page(report(hostile), context=context).page
        assert other.locator("#progress").inner_text().startswith("None of")
    finally:
        context.close()


def test_where_the_browser_keeps_nothing_the_page_says_so(digits, browser, open_page: Callable[..., Any]) -> None:
    context = browser.new_context()
    try:
        context.add_init_script("Object.defineProperty(window, 'localStorage', {get() { throw new Error('denied') }})")
        opened = open_page(report(digits), context=context)
        opened.page.click("#begin")
        opened.page.keyboard.press("a")
        assert opened.page.locator("#not-kept").is_visible()
        assert [row["verdict"] for row in exported(opened.page)] == ["accepted"]
        assert opened.errors == []
    finally:
        context.close()


def test_what_another_program_left_in_the_browser_does_no_harm(digits, open_page) -> None:
    opened = open_page(report(digits))
    opened.page.evaluate("localStorage.setItem(`stepe:${page.run}`, 'no JSON')")
    opened.page.reload()
    opened.page.click("#begin")
    opened.page.keyboard.press("u")
    assert opened.page.locator("#progress").inner_text().startswith("1 of")
    assert opened.errors == []
