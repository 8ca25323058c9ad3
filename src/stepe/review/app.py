"""The review as a small web application: one page, and a few addresses that it asks for data.

No path in an address leads to a file: what can be had is looked up among things that are known by name.
"""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from stepe.errors import InputError, StepeError
from stepe.review.cleaned import write_cleaned
from stepe.review.edits import MODES
from stepe.review.guard import App, Guard
from stepe.review.reviewed import write_reviewed
from stepe.review.suspects import Suspects
from stepe.run.folder import RunFolder
from stepe.run.previews import media_type

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
MOST_ROWS = 200
"""suspects whose details are sent at once"""


def review_app(suspects: Suspects, *, token: str, port: int, trust_paths: bool = False) -> App:
    """Make the application for one run, guarded."""
    shared = [files("stepe.report") / "templates" / name for name in ("theme.css", "elements.js")]
    static = {
        file.name: (file.read_bytes(), TYPES[Path(file.name).suffix])
        for file in (*shared, *(files("stepe.review") / "static").iterdir())
        if Path(file.name).suffix in TYPES
    }
    exported: dict[str, Path] = {}
    path = suspects.run.path

    def page(request: Request) -> Response:
        return serve(request, "review.html")

    def serve(request: Request, name: str = "") -> Response:
        content, kind = found(static, name or request.path_params["name"])
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    def describe(request: Request) -> Response:
        return JSONResponse(suspects.describe() | suspects.state())

    def details(request: Request) -> Response:
        return JSONResponse(suspects.details(numbers(request.query_params.get("rows", ""))))

    def changes(request: Request) -> Response:
        return JSONResponse(suspects.state(since=whole(request.query_params.get("since", ""))))

    def picture(request: Request) -> Response:
        row = request.path_params["row"]
        content = suspects.picture(int(row)) if is_whole(row) else None
        if content is None:
            raise HTTPException(404, "There is no such picture.")
        return Response(content, media_type=media_type(content), headers={"cache-control": "private, max-age=86400"})

    async def act(request: Request) -> Response:
        asked = await body(request)
        return await run_in_thread(decide, asked)

    def decide(asked: dict[str, Any]) -> Response:
        since = whole(str(asked.get("since", "")))  # what is refused must not have been saved
        suspects.record(asked.get("actions"))
        return JSONResponse(suspects.state(since=since))

    async def export(request: Request) -> Response:
        asked = await body(request)
        return await run_in_thread(write, asked)

    def write(asked: dict[str, Any]) -> Response:
        run = RunFolder(path)  # with what was decided by now
        match asked:
            case {"what": "reviewed"}:
                written = write_reviewed(run)
            case {"what": "cleaned", "mode": str(mode)} if mode in MODES:
                written = write_cleaned(run, mode, trust_paths=trust_paths)
            case _:
                raise InputError("ask for reviewed, or for cleaned and how")
        exported[written.name] = written
        return JSONResponse({"path": str(written), "address": f"/files/{written.name}"})

    def download(request: Request) -> Response:
        written = found(exported, request.path_params["name"])
        return FileResponse(written, filename=written.name, media_type="application/octet-stream")

    app = Starlette(
        routes=[
            Route("/", page),
            Route("/static/{name}", serve),
            Route("/files/{name}", download),
            Route("/api/suspects", describe),
            Route("/api/details", details),
            Route("/api/changes", changes),
            Route("/api/picture/{row}", picture),
            Route("/api/actions", act, methods=["POST"]),
            Route("/api/export", export, methods=["POST"]),
        ],
        exception_handlers={StepeError: _refused, HTTPException: _refused},
    )
    return Guard(app, token=token, port=port, run=suspects.run.digest)


async def run_in_thread(work: Any, asked: dict[str, Any]) -> Response:
    """Write in a thread: writing waits for the disk, and must not keep others waiting."""
    from starlette.concurrency import run_in_threadpool

    answer: Response = await run_in_threadpool(work, asked)
    return answer


async def body(request: Request) -> dict[str, Any]:
    """Read what was sent, as JSON."""
    try:
        asked = json.loads(await request.body())
        json.dumps(asked, ensure_ascii=False).encode()  # half a character can be written in JSON, but not saved
    except (ValueError, RecursionError) as error:
        raise InputError(f"the request is no JSON: {error}") from error
    if not isinstance(asked, dict):
        raise InputError("the request is no JSON object")
    return asked


def found(things: dict[str, Any], name: str) -> Any:
    """Find a thing by its name."""
    if name not in things:
        raise HTTPException(404, "There is nothing here.")
    return things[name]


def is_whole(text: str) -> bool:
    """Say whether a text is a whole number, of no more digits than the decisions can hold."""
    return text.isascii() and text.isdecimal() and len(text) < 18


def whole(text: str) -> int:
    """Read a whole number that somebody sent."""
    if not is_whole(text):
        raise InputError(f"{text[:20]!r} is no whole number")
    return int(text)


def numbers(text: str) -> list[int]:
    """Read whole numbers with commas between."""
    return [whole(part) for part in text.split(",")[:MOST_ROWS]]


def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code)
    return JSONResponse({"error": str(error)}, 400 if isinstance(error, InputError) else 500)
