"""A run to review, and requests to its app."""

import asyncio
import json
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from made_run import make_run
from stepe import Run
from stepe.review.suspects import Suspects

TOKEN, PORT = "the-token", 8765
HOST = f"127.0.0.1:{PORT}"


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def finish(work: Coroutine[Any, Any, None]) -> None:
    """In a thread of its own: the browser of other tests keeps a loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()


@pytest.fixture
def run(tmp_path) -> Run:
    return make_run(tmp_path / "run")


@pytest.fixture
def app(run):
    from stepe.review.app import review_app

    return review_app(Suspects(run), token=TOKEN, port=PORT)


@pytest.fixture
def connect(app):
    """Another kind of connection, whose other side must hear nothing."""

    async def fail(*_):
        raise AssertionError("nobody is talked to")

    def connect(kind: str) -> None:
        finish(app({"type": kind, "headers": [], "path": "/"}, fail, fail))

    return connect


@pytest.fixture
def ask(app):
    """A request as a server would hand it on; by default one that the page itself could send."""

    def ask(
        path: str, content: Any = None, *, method: str | None = None, query: str = "", **headers: str | None
    ) -> Answer:
        body = b"" if content is None else content if isinstance(content, bytes) else json.dumps(content).encode()
        usual = {"host": HOST, "cookie": f"stepe-review-{PORT}={TOKEN}"}
        if content is not None:
            usual |= {"origin": f"http://{HOST}", "content-length": str(len(body))}
        sent = {name: value for name, value in (usual | headers).items() if value is not None}
        scope = {
            "type": "http",
            "method": "GET" if content is None else "POST",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "scheme": "http",
            "query_string": query.encode(),
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in sent.items()],
        }
        answer = Answer()

        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if not waiting:
                await asyncio.Event().wait()  # the browser stays
            return waiting.pop()

        async def send(message) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                answer.body += message.get("body", b"")

        finish(app(scope, receive, send))
        return answer

    return ask
