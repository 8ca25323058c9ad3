"""Who is let in, and who is not."""

import pytest

from stepe.review.guard import LARGEST

TOKEN, PORT = "the-token", 8765
DECIDE = {"actions": [{"id": "one", "origin": "ranked", "choices": [{"row": 0, "label": 1}]}], "since": 0}


def test_the_printed_address_opens_the_page_and_hands_out_a_cookie(ask):
    answer = ask("/", query=f"token={TOKEN}", cookie=None)
    assert answer.status == 200
    assert answer.headers["set-cookie"] == f"stepe-review-{PORT}={TOKEN}; Path=/; HttpOnly; SameSite=Strict"
    assert b"stepe review" in answer.body
    assert TOKEN.encode() not in answer.body


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765"])
def test_the_cookie_is_enough_from_then_on(ask, host):
    answer = ask("/api/suspects", host=host)
    assert answer.status == 200
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", ["/", "/static/review.js", "/api/suspects", "/api/picture/0", "/files/reviewed.csv"])
@pytest.mark.parametrize(
    ("query", "cookie"),
    [
        ("", None),
        ("token=", None),
        ("token=the-tokem", None),
        ("token=the-token-and-more", None),
        ("token=%E2%98%83", None),
        ("", "stepe-review-8765=the-tokem"),
        ("", "stepe-review-8766=the-token"),
        ("", "token=the-token"),
        ("", "\x01=;;"),
    ],
)
def test_without_the_token_nothing_is_served(ask, path, query, cookie):
    answer = ask(path, query=query, cookie=cookie)
    assert answer.status == 403
    assert b"token is missing" in answer.body


def test_the_token_in_an_address_opens_the_page_only(ask):
    assert ask("/api/suspects", query=f"token={TOKEN}", cookie=None).status == 403


@pytest.mark.parametrize("path", ["/api/actions", "/api/export", "/api/changes"])
def test_a_page_of_another_run_is_refused(ask, run, path):
    sent = None if path == "/api/changes" else DECIDE | {"what": "reviewed"}
    assert ask(path, sent, query="since=0", stepe_run=run.digest).status == 200
    decided = run.decisions.last
    answer = ask(path, sent, query="since=0", stepe_run="0123456789abcdef")
    assert answer.status == 409
    assert b"another run" in answer.body
    assert run.decisions.last == decided


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1", "127.0.0.1:8766", "127.0.0.1:8765.evil.example", None]
)
@pytest.mark.parametrize("path", ["/", "/api/suspects"])
def test_another_host_is_refused_whatever_else_it_brings(ask, path, host):
    answer = ask(path, query=f"token={TOKEN}", host=host)
    assert answer.status == 421
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "origin",
    [None, "null", "http://evil.example", "https://127.0.0.1:8765", "http://127.0.0.1:9999", "http://localhost:8765"],
)
def test_only_the_page_itself_may_change_something(ask, run, origin):
    assert ask("/api/actions", DECIDE, origin=origin).status == 403
    assert ask("/api/export", {"what": "reviewed"}, origin=origin).status == 403
    assert run.decisions.current() == {}
    assert not (run.path / "reviewed.csv").exists()
    assert ask("/api/actions", DECIDE).status == 200


def test_a_change_needs_the_token_too(ask, run):
    assert ask("/api/actions", DECIDE, cookie=None).status == 403
    assert ask("/api/actions", DECIDE, cookie=None, query=f"token={TOKEN}").status == 403
    assert run.decisions.current() == {}


@pytest.mark.parametrize(("size", "status"), [(None, 411), ("many", 411), (str(LARGEST + 1), 413)])
def test_requests_of_unknown_or_large_size_are_refused(ask, size, status):
    assert ask("/api/actions", DECIDE, content_length=size, **{"content-length": None}).status == status


@pytest.mark.parametrize(
    ("path", "query", "cookie"), [("/", f"token={TOKEN}", None), ("/api/suspects", "", None), ("/nothing", "", "x")]
)
def test_every_answer_tells_the_browser_what_it_may_do(ask, path, query, cookie):
    headers = ask(path, query=query, cookie=cookie).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize(
    "path",
    [
        "/../config.json",
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/app.py",
        "/static//etc/passwd",
        "/files/config.json",
        "/files/samples.parquet",
        "/files/../config.json",
        "/files/%2e%2e%2fconfig.json",
        "/files/decisions.sqlite",
        "/api/picture/../../config.json",
        "/api/picture/-1",
        "/api/picture/999999",
        "/api/picture/1e3",
        "/api/picture/" + "9" * 5_000,
        "/config.json",
    ],
)
def test_no_path_leads_out_of_what_is_served(ask, path):
    answer = ask(path)
    assert answer.status == 404
    assert b"class_names" not in answer.body


def test_other_kinds_of_connections_are_not_taken(connect):
    connect("websocket")
