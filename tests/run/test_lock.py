"""The lock of a run folder: who is kept out, and what a dead process leaves behind."""

import errno
import fcntl
import json
import multiprocessing
import os
import signal
import socket
import threading
from pathlib import Path

import pytest

from stepe.errors import InputError, RunError
from stepe.run.lock import LOCK, OWNER, check_free, locked, locked_new


def hold(folder: Path, connection) -> None:
    """A process that takes a folder and keeps it until it is told, or killed."""
    with locked(folder):
        connection.send(os.getpid())
        connection.recv()


def take_names(runs: Path, start, connection, times: int) -> None:
    start.wait()
    found = []
    for _ in range(times):
        with locked_new("digits", runs) as folder:
            (folder / "config.json").write_text("{}")
            found.append(folder.name)
    connection.send(found)


@pytest.fixture
def other(tmp_path):
    """A process that holds ``tmp_path / "run"``, and the way to speak with it."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=hold, args=(tmp_path / "run", there))
    process.start()
    assert here.poll(300)
    assert here.recv() == process.pid
    yield process, here
    process.kill()
    process.join()


def test_a_folder_is_made_and_holds_the_lock_while_it_is_held(tmp_path):
    with locked(tmp_path / "a" / "run") as folder:
        owner = json.loads((folder / OWNER).read_text())
        assert owner["pid"] == os.getpid()
        assert owner["host"] == socket.gethostname()
        (folder / "mine").touch()
    assert [entry.name for entry in folder.iterdir()] == ["mine"]


def test_a_folder_that_was_made_and_stayed_empty_goes_and_one_that_was_there_stays(tmp_path):
    (tmp_path / "mine").mkdir()
    for name in ("new", "mine"):
        with locked(tmp_path / name):
            pass
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine"]


def test_another_process_is_told_who_has_the_folder_and_since_when(tmp_path, other):
    process, _ = other
    since = json.loads((tmp_path / "run" / OWNER).read_text())["since"]
    for attempt in (lambda: locked(tmp_path / "run").__enter__(), lambda: check_free(tmp_path / "run")):
        with pytest.raises(RunError) as error:
            attempt()
        assert str(error.value) == (
            f"{tmp_path / 'run'} is in use by process {process.pid} since {since}; wait for it to end, stop it, or "
            "choose another folder"
        )


def test_another_thread_is_kept_out_too_and_this_process_is_named_so(tmp_path):
    found = []

    def attempt() -> None:
        try:
            with locked(tmp_path / "run"):
                found.append("in")
        except RunError as error:
            found.append(str(error))

    with locked(tmp_path / "run"):
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
    assert "is in use by this very process since" in found[0]


def test_a_process_on_another_machine_is_named_with_its_host(tmp_path, other):
    (tmp_path / "run" / OWNER).write_text(json.dumps({"pid": 7, "host": "elsewhere", "since": "noon"}))
    with pytest.raises(RunError, match="is in use by process 7 on elsewhere since noon"):
        check_free(tmp_path / "run")


@pytest.mark.parametrize("written", ["", "no json", "[]", '{"pid": 3}'])
def test_an_owner_that_says_nothing_of_itself_still_has_the_folder(tmp_path, other, written):
    (tmp_path / "run" / OWNER).write_text(written)
    with pytest.raises(RunError, match="is in use by another process, which does not say its name"):
        check_free(tmp_path / "run")


def test_the_lock_of_a_killed_process_keeps_nobody_out(tmp_path, other):
    process, _ = other
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert (tmp_path / "run" / LOCK).exists()
    check_free(tmp_path / "run")
    with locked(tmp_path / "run") as folder:
        assert json.loads((folder / OWNER).read_text())["pid"] == os.getpid()


def test_a_forked_worker_that_outlives_its_parent_does_not_keep_the_folder(tmp_path):
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    with locked(tmp_path / "run"):
        worker = context.Process(target=there.recv)
        worker.start()
    with locked(tmp_path / "run"):
        pass
    here.send("done")
    worker.join()


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_whatever_ends_the_work_frees_the_folder(tmp_path, error):
    with pytest.raises(error), locked(tmp_path / "run"):
        raise error
    with locked(tmp_path / "run"):
        pass


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "run").write_text("mine")
    for attempt in (lambda: locked(tmp_path / "run").__enter__(), lambda: check_free(tmp_path / "run")):
        with pytest.raises(InputError, match="run is a file; choose another folder for the run"):
            attempt()


def test_where_files_cannot_be_locked_the_run_goes_on_with_a_warning(tmp_path, monkeypatch):
    def refuse(handle, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.warns(UserWarning, match="where files cannot be locked"), locked(tmp_path / "run"):
        pass


def test_a_name_that_leads_out_is_refused(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(tmp_path / "victim")
    with pytest.raises(RunError), locked(tmp_path / "run"):
        pass
    assert not (tmp_path / "victim").exists()


def test_runs_are_numbered_one_after_the_other(tmp_path):
    runs = tmp_path / "runs"
    with locked_new("digits", runs) as folder:
        assert folder == runs / "digits-1"
    assert not runs.exists()
    for name in ("digits-1", "digits-9", "digits-10", "digits-x", "digits-2-old", "other-50", "digits-²"):
        (runs / name).mkdir(parents=True)
    with locked_new("digits", runs) as folder:
        assert folder == runs / "digits-11"
    assert not folder.exists()
    for number in (1, 2):
        with locked_new("odd[1]*", runs) as folder:
            assert folder == runs / f"odd[1]*-{number}"
            (folder / "config.json").touch()


def test_processes_that_start_together_never_share_a_name(tmp_path):
    context, times = multiprocessing.get_context("fork"), 40
    start, pipes = context.Event(), [context.Pipe() for _ in range(4)]
    racing = [context.Process(target=take_names, args=(tmp_path / "runs", start, there, times)) for _, there in pipes]
    for process in racing:
        process.start()
    start.set()
    found = [name for here, _ in pipes for name in here.recv()]
    for process in racing:
        process.join()
    assert len(found) == len(set(found)) == 4 * times


def test_processes_that_race_for_one_folder_have_it_one_at_a_time(tmp_path):
    """Each removes the lock's file when it leaves, while the others open it."""
    context = multiprocessing.get_context("fork")
    start, pipes = context.Event(), [context.Pipe() for _ in range(4)]
    (tmp_path / "run").mkdir()

    def enter(connection) -> None:
        start.wait()
        alone = True
        for _ in range(200):
            try:
                with locked(tmp_path / "run"):
                    (tmp_path / "run" / "here").mkdir()  # fails if somebody is in
                    (tmp_path / "run" / "here").rmdir()
            except FileExistsError:
                alone = False
            except RunError:
                pass
        connection.send(alone)

    racing = [context.Process(target=enter, args=(there,)) for _, there in pipes]
    for process in racing:
        process.start()
    start.set()
    assert [here.recv() for here, _ in pipes] == [True] * 4
    for process in racing:
        process.join()
