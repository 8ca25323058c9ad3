import hashlib
import http.server
import io
import os
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stepe import InputError
from stepe.data import download
from stepe.data.download import Remote, fetch, unpack
from stepe.errors import RunError

BODY = bytes(range(256)) * 4000


class Server:
    """Answers on this machine, as told: with a status and a body, one request after another."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes]] = [(200, BODY)]
        self.requests = 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = outer.answers[min(outer.requests, len(outer.answers) - 1)]
                outer.requests += 1
                self.send_response(status)
                self.send_header("Content-Length", str(len(BODY)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def remote(self) -> Remote:
        url = f"http://127.0.0.1:{self.server.server_port}/some/file.bin"
        return Remote(url, hashlib.sha256(BODY).hexdigest())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    pytest.importorskip("pooch")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between attempts
    server = Server()
    thread = threading.Thread(target=server.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.server.shutdown()
    thread.join()
    server.server.server_close()


def tar(path: Path, *members: tuple[str, bytes | str]) -> Path:
    """An archive of files (bytes) and symbolic links (their target)."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
            else:
                member.type, member.linkname = tarfile.SYMTYPE, content
                archive.addfile(member)
    return path


def test_a_file_is_fetched_into_a_folder_that_need_not_exist_with_progress(server, tmp_path, capfd):
    path = fetch(server.remote, tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "file.bin"
    assert path.read_bytes() == BODY
    assert list(path.parent.iterdir()) == [path]
    shown = capfd.readouterr()
    assert "1.0/1.0 MB" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize("bad", [(503, BODY), (200, BODY[:-9]), (200, BODY[::-1])], ids=["busy", "cut off", "wrong"])
def test_a_failed_attempt_is_made_again(server, tmp_path, bad):
    server.answers = [bad, bad, (200, BODY)]
    assert fetch(server.remote, tmp_path).read_bytes() == BODY
    assert server.requests == 3


def test_a_file_is_as_readable_as_the_folder_it_is_in(server, tmp_path):
    for name, mode in (("shared", 0o755), ("private", 0o700)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
        assert fetch(server.remote, tmp_path / name).stat().st_mode & 0o777 == mode & 0o666


def test_a_file_that_is_there_and_whole_is_not_fetched_again(server, tmp_path):
    (tmp_path / "file.bin").write_bytes(BODY)
    assert fetch(server.remote, tmp_path) == tmp_path / "file.bin"
    assert server.requests == 0


def test_a_file_that_is_there_but_cut_off_is_fetched_again(server, tmp_path):
    (tmp_path / "file.bin").write_bytes(BODY[:1000])
    assert fetch(server.remote, tmp_path).read_bytes() == BODY


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        ((404, BODY), "could not be downloaded .*404"),
        ((200, BODY[:-9]), "could not be downloaded"),
        ((200, BODY[::-1]), "not the published file"),
    ],
)
def test_what_never_comes_right_is_an_error_that_says_how_to_get_it_and_leaves_nothing(server, tmp_path, answer, match):
    server.answers = [answer]
    with pytest.raises(InputError, match=f"{match}.* get {server.remote.url} yourself and put it into {tmp_path}"):
        fetch(server.remote, tmp_path)
    assert server.requests == 1 + download.RETRIES
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_does_not_answer_is_an_error_that_names_it(server, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/file.bin"
    with pytest.raises(InputError, match=f"{url} could not be downloaded"):
        fetch(Remote(url, "0"), tmp_path)


def test_a_folder_that_cannot_be_written_is_named(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=f"cannot write {tmp_path / 'file' / 'file.bin'}"):
        fetch(server.remote, tmp_path / "file")


def test_a_missing_extra_is_named_with_the_way_around_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    remote = Remote("https://example.org/file.bin", hashlib.sha256(BODY).hexdigest())
    with pytest.raises(InputError, match=rf"pip install 'stepe\[download\]'; or get {remote.url} .* {tmp_path}"):
        fetch(remote, tmp_path)
    (tmp_path / "file.bin").write_bytes(BODY)
    assert fetch(remote, tmp_path).read_bytes() == BODY


def test_pooch_is_loaded_only_to_download():
    code = "import sys, stepe.data.cifar_n; sys.exit('pooch' in sys.modules or 'requests' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode == 0


def test_the_members_asked_for_are_unpacked_and_no_others(tmp_path):
    archive = tar(tmp_path / "a.tar.gz", ("set/one", b"1" * 99), ("set/readme", b"no"), ("set/two", b"2"))
    unpack(archive, ["set/two", "set/one"], tmp_path / "out")
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == {"one": b"1" * 99, "two": b"2"}
    assert {file.name for file in tmp_path.iterdir()} == {"a.tar.gz", "out"}


def test_an_archive_cannot_write_outside(tmp_path):
    inside = tmp_path / "deep" / "inside"
    inside.mkdir(parents=True)
    archive = tar(
        tmp_path / "a.tar.gz",
        ("set", str(tmp_path)),
        ("../escaped", b"x"),
        (f"{tmp_path}/absolute", b"x"),
        ("set/../../up", b"x"),
        ("set/one", b"1"),
    )
    unpack(archive, ["set/one"], inside / "set")
    assert [file.read_bytes() for file in (inside / "set").iterdir()] == [b"1"]
    assert not (inside / "set").is_symlink()
    assert {file.name for file in tmp_path.rglob("*")} == {"a.tar.gz", "deep", "inside", "set", "one"}


def test_a_link_in_the_place_of_a_file_is_refused_and_nothing_is_left(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for target in (str(secret), "../secret", "set/real"):
        archive = tar(tmp_path / "a.tar.gz", ("set/real", b"1"), ("set/one", target))
        with pytest.raises(InputError, match=f"{archive} is damaged: set/one .*not a plain file; delete it"):
            unpack(archive, ["set/one"], tmp_path / "out")
    assert {file.name for file in tmp_path.iterdir()} == {"a.tar.gz", "secret"}


@pytest.mark.parametrize("damage", ["cut off", "overwritten", "no archive", "a member short"])
def test_a_damaged_archive_is_named_and_leaves_nothing(tmp_path, damage):
    content = np.random.default_rng(0).integers(4, size=100_000, dtype=np.uint8).tobytes()
    archive = tar(tmp_path / "a.tar.gz", *([("set/one", content)] if damage != "a member short" else []))
    data = bytearray(archive.read_bytes())
    if damage == "cut off":
        data = data[: len(data) // 2]
    elif damage == "overwritten":
        data[10_000:11_000] = b"\xff" * 1000
    elif damage == "no archive":
        data = bytearray(content)
    archive.write_bytes(data)
    with pytest.raises(InputError, match=f"{archive} is damaged .*; delete it"):
        unpack(archive, ["set/one"], tmp_path / "out")
    assert list(tmp_path.iterdir()) == [archive]


def test_a_folder_that_another_process_finished_meanwhile_stands(tmp_path):
    archive = tar(tmp_path / "a.tar.gz", ("set/one", b"1"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "one").write_bytes(b"theirs")
    unpack(archive, ["set/one"], tmp_path / "out")
    assert (tmp_path / "out" / "one").read_bytes() == b"theirs"
    assert {file.name for file in tmp_path.iterdir()} == {"a.tar.gz", "out"}
