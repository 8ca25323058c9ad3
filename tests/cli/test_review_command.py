"""``stepe review``, up to where it serves."""

import socket
import sys
import types
from collections.abc import Callable
from functools import partial

import pytest

from command import Ended
from made_run import make_run


@pytest.fixture
def call(call) -> Callable[..., Ended]:
    return partial(call, "review")


@pytest.fixture
def run(tmp_path) -> str:
    return str(make_run(tmp_path / "run").path)


@pytest.fixture
def served(monkeypatch) -> list[tuple[str, int]]:
    """Where the server listened, had it gone on."""
    found = []

    def run(self, sockets):
        found.append(sockets[0].getsockname())

    monkeypatch.setattr("uvicorn.Server.run", run)
    return found


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    found = []
    monkeypatch.setattr("webbrowser.open", found.append)
    monkeypatch.setattr("stepe.review.server._has_display", lambda: True)
    monkeypatch.setattr(
        "threading.Thread", lambda target, args, daemon: types.SimpleNamespace(start=lambda: target(*args))
    )
    return found


def test_the_address_is_printed_with_a_token_and_listens_here_only(call, run, served, opened):
    code, out, err = call(run)
    assert code == 0
    ((host, port),) = served
    assert host == "127.0.0.1"
    address, token = out.strip().split("/?token=")
    assert address == f"http://127.0.0.1:{port}"
    assert len(token) >= 32
    assert err.startswith("60 labels to look at")
    assert opened == [out.strip()]
    assert call(run)[1] != out


def test_no_browser_is_opened_if_none_is_wanted(call, run, served, opened):
    call(run, "--no-open", "--port", "0")
    assert opened == []
    assert len(served) == 1


def test_a_port_that_is_taken_is_said_to_be_unless_any_will_do(call, run, served, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = call(run, "--no-open", "--port", str(port))
        assert code == 2
        assert f"port {port} cannot be used" in err
        monkeypatch.setattr("stepe.review.server.USUAL_PORT", port)
        assert call(run, "--no-open")[0] == 0
    assert served[0][1] != port


def test_a_missing_extra_is_named(call, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "stepe.review.server", raising=False)
    code, _, err = call(run)
    assert code == 2
    assert 'pip install "stepe[review]"' in err
    assert err.count("\n") == 1


def test_a_folder_that_is_no_run_is_refused(call, tmp_path):
    code, _, err = call(str(tmp_path))
    assert code == 2
    assert "not a run folder" in err
