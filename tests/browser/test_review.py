"""``stepe review`` in a real browser."""

import http.client
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

from made_run import NASTY, make_run
from processes import own_port
from stepe import Run
from stepe.run.decisions import Action, Decision


class Served:
    """A run, and where it is reviewed."""

    def __init__(self, run: Run):
        self.run = run
        self.address = ""

    @property
    def port(self) -> int:
        found = urlsplit(self.address).port
        assert found is not None
        return found

    @property
    def decided(self) -> dict[int, tuple[str, str | None]]:
        """What the run folder holds, by row."""
        found = Run(self.run.path).decisions.current()
        return {key.row: (made.verdict, made.label) for key, made in found.items()}


class Command(Served):
    """``stepe review`` in a process of its own, always on the same port."""

    def __init__(self, run: Run):
        super().__init__(run)
        self._port = str(own_port())
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "stepe", "review", str(self.run.path), "--no-open", "--port", self._port]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()

    def kill(self) -> None:
        self._process.kill()  # SIGKILL: no last words
        self._process.communicate()


@pytest.fixture
def command(tmp_path) -> Iterator[Callable[..., Command]]:
    """Start the command, for what needs to be killed."""
    started = []

    def command(**options: Any) -> Command:
        started.append(Command(make_run(tmp_path / "run", **options)))
        return started[-1]

    yield command
    for each in started:
        each.kill()


@pytest.fixture
def serve(tmp_path, monkeypatch) -> Iterator[Callable[..., Served]]:
    """The same server in a thread, which is there at once."""
    uvicorn = pytest.importorskip("uvicorn")
    from stepe.review.server import serve as serve_for_ever
    from stepe.review.suspects import Suspects

    running, threads = [], []

    class Stoppable(uvicorn.Server):
        def __init__(self, config):
            super().__init__(config)
            running.append(self)

    monkeypatch.setattr("uvicorn.Server", Stoppable)

    def serve(**options: Any) -> Served:
        served = Served(make_run(tmp_path / "run", **options))
        told: Queue[str] = Queue()
        arguments = {"port": 0, "announce": told.put, "show": False}
        threads.append(Thread(target=serve_for_ever, args=(Suspects(served.run),), kwargs=arguments))
        threads[-1].start()
        served.address = told.get(timeout=300)
        return served

    yield serve
    for server in running:
        server.should_exit = server.force_exit = True
    for thread in threads:
        thread.join(timeout=300)


class Reviewer:
    """Somebody at a page."""

    def __init__(self, opened):
        self.page, self.errors, self.requests = opened.page, opened.errors, opened.requests
        self.page.wait_for_selector(".suspect .where bdi")

    @property
    def row(self) -> int:
        return int(self.page.get_attribute(".suspect", "data-row"))

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def side(self, selector: str, name: str) -> float:
        """Where an element is, or how large, in one step: the page may draw it anew at any time."""
        self.page.wait_for_selector(selector)
        measure = "([selector, name]) => document.querySelector(selector).getBoundingClientRect()[name]"
        return float(self.page.evaluate(measure, [selector, name]))

    def wait_for(self, state: str) -> None:
        self.page.wait_for_selector(f"#saved.{state}")

    def wait_until_saved(self) -> None:
        self.wait_for("saved")

    def come_back(self, decided: int) -> None:
        """To this tab, from another one, once it has heard of all that was decided there."""
        self.page.bring_to_front()
        self.page.wait_for_function(
            "count => document.querySelector('#progress').textContent.startsWith(`${count} of`)", arg=decided
        )
        self.page.evaluate("window.dispatchEvent(new Event('focus'))")
        self.page.wait_for_selector(".suspect .verdict", state="detached")


@pytest.fixture
def review(serve, open_page):
    """A server and somebody who opened its page."""

    def review(**options: Any) -> tuple[Served, Reviewer]:
        server = serve(**options)
        return server, Reviewer(open_page(server.address))

    return review


@pytest.mark.slow
def test_fifty_decisions_from_two_tabs_outlive_a_killed_server(command, open_page):
    server = command(suspects=80)
    one = Reviewer(open_page(server.address))
    two = Reviewer(open_page(f"http://127.0.0.1:{server.port}/", context=one.page.context))
    chosen = {}
    for turn in range(25):
        if turn == 12:
            one.wait_until_saved()
            two.wait_until_saved()
            server.kill()
        if turn == 17:  # ten decisions were made meanwhile, that no server has heard of
            one.wait_for("offline")
            two.wait_for("offline")
            assert len(server.decided) == 24
            server.start()
            three = Reviewer(open_page(server.address, context=one.page.context))
            three.wait_until_saved()
        for tab in (one, two):
            tab.come_back(len(chosen))
            row, key = tab.row, "aku2"[turn % 4]
            assert row not in chosen
            chosen[row] = key
            tab.press(key)
    for tab in (one, two, three):
        tab.wait_until_saved()
    server.kill()
    server.start()
    verdicts = {"a": "accepted", "k": "kept", "u": "unsure"}
    assert set(server.decided) == set(chosen)
    assert len(chosen) == 50
    for row, key in chosen.items():
        if key in verdicts:
            assert server.decided[row][0] == verdicts[key]
    with sqlite3.connect(server.run.path / "decisions.sqlite") as database:
        assert database.execute("SELECT count(*), count(DISTINCT row) FROM choices").fetchone() == (50, 50)
    again = Reviewer(open_page(server.address))
    assert again.page.inner_text("#progress").startswith("50 of 80 decided")


@pytest.mark.slow
def test_a_page_left_open_decides_on_its_own_run_only(command, open_page, tmp_path):
    server = command()
    reviewed = server.run
    left_open = Reviewer(open_page(server.address))
    server.kill()
    server.run = make_run(tmp_path / "other", classes=["cat", "dog", "cow"])
    server.start()
    Reviewer(open_page(server.address, context=left_open.page.context))  # the cookie is for the port: both have it
    row = left_open.row
    left_open.press("a")
    left_open.page.wait_for_selector("#saved.offline[title*='another run']")
    assert server.decided == {}
    server.kill()
    server.run = reviewed
    server.start()
    Reviewer(open_page(server.address, context=left_open.page.context)).wait_until_saved()
    assert set(server.decided) == {row}


def test_keys_decide_and_the_next_one_is_there(review):
    server, somebody = review(classes=["cat", "dog", "cow"])
    samples = server.run.samples.set_index("row")
    rows = []
    for key in ("a", "Enter", "k", "3", "u"):
        rows.append(somebody.row)
        somebody.press(key)
        assert somebody.row != rows[-1]
    somebody.wait_until_saved()
    verdicts = [server.decided[row] for row in rows]
    suggested, given = samples["suggested_label"], samples["given_label"]
    assert verdicts[0] == ("accepted", suggested[rows[0]])
    assert verdicts[1] == ("accepted", suggested[rows[1]])
    assert verdicts[2] == ("kept", given[rows[2]])
    assert verdicts[3][1] == "cow"
    assert verdicts[4] == ("unsure", None)
    somebody.press("z")
    assert somebody.row == rows[4]
    somebody.press("z")
    assert somebody.row == rows[3]
    somebody.wait_until_saved()
    assert set(server.decided) == set(rows[:3])
    somebody.press("ArrowLeft")
    assert somebody.row == rows[2]
    assert somebody.page.inner_text(".suspect .verdict") == "Decided: kept"
    somebody.press("a")
    somebody.wait_until_saved()
    assert server.decided[rows[2]][0] == "accepted"
    assert somebody.errors == []


def test_classes_are_found_by_typing(review):
    server, somebody = review()
    row = somebody.row
    somebody.press("/")
    somebody.page.keyboard.type("onerr")
    assert somebody.page.inner_text(".matches") == NASTY[0]
    somebody.press("Enter")
    somebody.wait_until_saved()
    assert server.decided == {row: ("relabelled", NASTY[0])}
    somebody.press("a")  # keys are keys again
    somebody.wait_until_saved()
    assert len(server.decided) == 2


def elsewhere(server: Served, row: int) -> None:
    """Somebody else decides."""
    server.run.decisions.record(Action("elsewhere", (Decision("train", row, "kept", "cat"),)))


def hear(somebody: Reviewer) -> None:
    """Ask the server what is new, as the page does every few seconds."""
    with somebody.page.expect_response("**/api/changes*"):
        somebody.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    somebody.page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")


def test_what_is_typed_stays_when_others_decide(review):
    server, somebody = review()
    elsewhere(server, somebody.row)
    somebody.press("/")
    somebody.page.keyboard.type("co")
    hear(somebody)
    assert somebody.page.inner_text(".suspect .verdict") == "Decided: kept"
    somebody.page.keyboard.type("w")
    assert somebody.page.input_value("#finder") == "cow"
    assert somebody.page.inner_text(".matches") == "cow"


def test_a_match_is_chosen_with_a_click_and_the_next_one_is_typed_anew(review):
    server, somebody = review()
    row = somebody.row
    somebody.press("/")
    somebody.page.keyboard.type("cow")
    somebody.page.click(".matches li")
    somebody.wait_until_saved()
    assert server.decided[row][1] == "cow"
    assert somebody.page.input_value("#finder") == ""
    somebody.press("k")
    somebody.wait_until_saved()
    assert len(server.decided) == 2


@pytest.mark.parametrize("news", [False, True])
def test_the_list_of_pairs_keeps_the_focus(review, news):
    server, somebody = review()
    pair = somebody.page.locator("#pairs button").nth(2)
    pair.focus()
    focused = "document.activeElement.dataset.pair"
    before = somebody.page.evaluate(focused)
    if news:
        elsewhere(server, 0)
    hear(somebody)
    assert before is not None
    assert somebody.page.evaluate(focused) == before


def test_after_a_filter_is_chosen_with_a_pointer_keys_decide(review):
    server, somebody = review()
    select = somebody.page.locator("#given")
    select.dispatch_event("pointerdown")
    select.focus()
    select.select_option(label="cat")
    row = somebody.row
    somebody.press("k")
    somebody.wait_until_saved()
    assert server.decided == {row: ("kept", "cat")}
    assert select.input_value() == "0"


def test_a_decision_shows_the_next_suspect_without_waiting_for_the_server(review):
    server, somebody = review()
    held = []
    somebody.page.route("**/api/actions", lambda route: held.append(route))
    somebody.page.wait_for_load_state("networkidle")
    for _ in range(5):
        before = somebody.row
        somebody.press("a")
        assert somebody.row != before
        assert somebody.page.evaluate("document.querySelector('.preview img').complete")
    assert server.decided == {}
    somebody.wait_for("saving")
    somebody.page.unroute("**/api/actions")  # lets go of what was held
    somebody.wait_until_saved()
    assert len(server.decided) == 5


@pytest.mark.slow
def test_closing_a_page_with_unsaved_decisions_warns_and_they_are_not_lost(command, open_page):
    server = command()
    somebody = Reviewer(open_page(server.address))
    server.kill()
    somebody.page.mouse.click(5, 5)  # browsers only warn people who touched the page
    row = somebody.row
    somebody.press("a")
    somebody.wait_for("offline")
    warned = []

    def close(dialog) -> None:
        warned.append(dialog.type)
        dialog.accept()

    somebody.page.on("dialog", close)
    with somebody.page.expect_event("close"):
        somebody.page.close(run_before_unload=True)
    assert warned == ["beforeunload"]
    server.start()
    later = Reviewer(open_page(server.address, context=somebody.page.context))
    later.wait_until_saved()
    assert server.decided == {row: ("accepted", server.run.samples["suggested_label"][row])}


def test_the_suggestion_can_be_hidden(review):
    server, somebody = review(classes=["given one", "hidden two", "third"])
    somebody.press("h")
    shown = somebody.page.inner_text(".suspect .labels")
    assert "suggested" not in shown
    assert "suspicion" not in somebody.page.inner_text(".suspect")
    assert "Accept" not in somebody.page.inner_text(".suspect")
    assert "the model says" not in somebody.page.inner_text("main")
    assert not somebody.page.is_visible("#pairs")
    assert not somebody.page.is_visible(".of-suggested")
    row = somebody.row
    somebody.press("a", "Enter", "g")
    assert somebody.row == row
    assert somebody.page.locator(".choice .class").all_inner_texts() == ["given one", "hidden two", "third"]
    somebody.press("2")
    somebody.wait_until_saved()
    assert server.decided == {row: ("accepted", "hidden two")}
    somebody.press("h")
    assert somebody.page.is_visible(".suggestion")


def test_a_pair_is_accepted_at_once_and_that_undone_at_once(review):
    server, somebody = review()
    somebody.page.click("#pairs button >> nth=0")
    cards = somebody.page.locator(".card")
    cards.first.wait_for()
    assert cards.count() == 20
    assert somebody.page.inner_text(".labels").split() == ["given", "cat", "→", "suggested", "dog"]
    left_out = int(cards.nth(1).get_attribute("data-row"))
    cards.nth(1).click()
    assert "Accept all 19 on screen" in somebody.page.inner_text("#accept-all")
    somebody.press("Shift+A")
    somebody.wait_until_saved()
    assert len(server.decided) == 19
    assert set(server.decided.values()) == {("accepted", "dog")}
    assert left_out not in server.decided
    somebody.press("z")
    somebody.wait_until_saved()
    assert server.decided == {}
    assert cards.count() == 20
    with sqlite3.connect(server.run.path / "decisions.sqlite") as database:
        assert database.execute("SELECT count(*) FROM actions").fetchone() == (2,)


def test_a_random_sample_tells_how_many_flags_are_right(review):
    _, somebody = review(suspects=80)
    somebody.page.click("#sample")
    assert somebody.page.inner_text(".where").startswith("1 of 50")
    somebody.press("k", "a", "a", "u")
    somebody.wait_until_saved()
    assert somebody.page.inner_text("#precision").splitlines()[1] == "at random, 2 of 3 were wrong: 25–92%"
    somebody.page.click("#ranked")
    somebody.press("a", "a", "a")
    somebody.wait_until_saved()
    assert somebody.page.inner_text("#precision").splitlines()[0] == "5 of 6 were wrong: 50–96%"


def test_filters_choose_what_is_gone_through(review):
    server, somebody = review()
    somebody.press("k", "u", "a")
    somebody.page.select_option("#status", "unsure")
    assert somebody.page.inner_text(".where").startswith("1 of 1")
    assert somebody.page.inner_text(".suspect .verdict") == "Decided: not sure"
    somebody.page.select_option("#status", "all")
    somebody.page.select_option("#given", label="cow")
    given = server.run.issues["given_label"]
    assert somebody.page.inner_text(".where").startswith(f"1 of {(given == 'cow').sum()}")
    assert somebody.page.inner_text(".given") == "cow"


def test_what_was_decided_is_exported(review, tmp_path):
    server, somebody = review()
    row = somebody.row
    somebody.press("a")
    somebody.page.click("#export summary")
    with somebody.page.expect_download() as downloading:
        somebody.page.click("[data-export=reviewed]")
    content = Path(downloading.value.path()).read_bytes()
    assert content == (server.run.path / "reviewed.csv").read_bytes()
    assert content.splitlines()[1].startswith(f"{row},item-{row},train,".encode())
    with somebody.page.expect_download() as downloading:
        somebody.page.click("[data-export=cleaned][data-mode=mark]")
    assert downloading.value.suggested_filename == "cleaned.csv"
    assert "--decisions" in somebody.page.inner_text("#command")


@pytest.mark.parametrize("kind", ["images", "text", "table", "features"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_whatever_the_data_holds_stays_text(serve, open_page, tmp_path, kind, width, scheme):
    server = serve(kind=kind, classes=[*NASTY, "cat"])
    dialogs = []
    opened = open_page(server.address, width=width, color_scheme=scheme)
    opened.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    somebody = Reviewer(opened)
    seen = ""
    for _ in range(6):
        seen += somebody.page.inner_text("body")
        somebody.press("a")
    somebody.wait_until_saved()
    assert all(name.strip() in seen for name in NASTY)
    assert ("<script>alert(" in seen) == (kind == "text")
    assert dialogs == somebody.errors == []
    assert all(address.startswith(f"http://127.0.0.1:{server.port}/") for address in somebody.requests)
    assert somebody.page.evaluate("document.documentElement.scrollWidth") <= width
    assert "token" not in somebody.page.url
    picture = tmp_path / "review.png"
    somebody.page.screenshot(path=picture)
    assert picture.stat().st_size > 5_000


def test_long_ids_and_names_leave_room_for_the_rest(serve, open_page):
    classes = ["y" * 5_000, "dog", "שלום", "cat"]
    server = serve(classes=classes, kind="text", ids=lambda row: f"{row}" + "x" * 5_000)
    somebody = Reviewer(open_page(server.address))
    assert somebody.side(".verdicts .accept", "y") < 500
    somebody.press("/")
    somebody.page.keyboard.type("yy")
    assert somebody.side(".matches", "height") < 60
    somebody.press("Escape")
    counts = somebody.page.locator("#pairs .count")
    heights = counts.evaluate_all("all => all.map((count) => count.getBoundingClientRect().height)")
    assert max(heights) < 30
    somebody.press("g")
    somebody.page.wait_for_selector(".card .id")
    assert somebody.side(".card", "height") < 400


def test_a_name_from_right_to_left_turns_nothing_else_around(review):
    _, somebody = review(classes=["שלום", "cat", "dog"])
    somebody.press("a")
    toast = somebody.page.locator(".toast")
    assert toast.inner_text() == "שלום → cat: accepted"
    assert somebody.side(".toast bdi:nth-of-type(1)", "x") < somebody.side(".toast bdi:nth-of-type(2)", "x")


def test_names_that_differ_by_spaces_look_different(review):
    _, somebody = review(classes=["cat", "cat ", " cat"])
    assert somebody.page.locator(".choice bdi").all_inner_texts() == ["cat", "cat␣", "␣cat"]
    assert somebody.page.locator("#given option").all_inner_texts() == ["any", "cat", "cat␣", "␣cat"]


def test_an_export_may_take_long(review):
    _, somebody = review()
    somebody.page.evaluate("AbortSignal.timeout = () => AbortSignal.abort()")  # nobody waits any longer
    somebody.page.click("#export summary")
    with somebody.page.expect_download():
        somebody.page.click("[data-export=cleaned][data-mode=mark]")
    assert somebody.page.inner_text("#exported").startswith("Written: ")


def test_strangers_are_refused(serve, open_page):
    server = serve()
    token = server.address.partition("token=")[2]

    def ask(path: str, **headers: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("GET", path, headers=headers)
        status = connection.getresponse().status
        connection.close()
        return status

    cookie = {"Cookie": f"stepe-review-{server.port}={token}"}
    assert ask(f"/?token={token}") == 200
    assert ask("/api/suspects", **cookie) == 200
    assert ask("/") == 403
    assert ask(f"/?token={token[:-1]}{'y' if token.endswith('x') else 'x'}") == 403
    assert ask(f"/?token={token}", Host="evil.example") == 421
    assert ask("/api/suspects", Host=f"evil.example:{server.port}", **cookie) == 421
    for path in ("/../config.json", "/static/../app.py", "/files/..%2fconfig.json", "/files/config.json"):
        assert ask(path, **cookie) == 404
    page = open_page(f"http://127.0.0.1:{server.port}/?token=wrong").page
    assert "token is missing" in page.inner_text("body")


def test_another_site_cannot_decide(review, open_page):
    """A page from elsewhere, in the very browser that has the cookie."""
    server, somebody = review()
    elsewhere = open_page(f"http://localhost:{server.port}/", context=somebody.page.context).page
    send = """address => fetch(address, {method: "POST", credentials: "include", mode: "no-cors", body: JSON.stringify(
        {actions: [{id: "x", origin: "ranked", choices: [{row: 0, label: 1}]}], since: 0})}).then(() => 1, () => 0)"""
    elsewhere.set_content("<p>elsewhere</p>")
    elsewhere.evaluate(send, f"http://127.0.0.1:{server.port}/api/actions")
    assert server.decided == {}
