"""Serves a review on this machine, to a browser that has the address."""

import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable

import uvicorn

from stepe.errors import InputError
from stepe.review.app import review_app
from stepe.review.suspects import Suspects

HOST = "127.0.0.1"
USUAL_PORT = 8765
"""the port, the same at each start, so that a page that was left open finds its server again"""


def serve(
    suspects: Suspects, *, port: int | None, announce: Callable[[str], None], show: bool, trust_paths: bool = False
) -> None:
    """Serve until interrupted; ``announce`` is given the address, and ``show`` opens it in a browser.

    With ``trust_paths``, the input is read wherever the run folder says that it lies, though somebody else made it.
    """
    listening = _listen(port)
    token = secrets.token_urlsafe(24)
    found = listening.getsockname()[1]
    address = f"http://{HOST}:{found}/?token={token}"
    app = review_app(suspects, token=token, port=found, trust_paths=trust_paths)
    config = uvicorn.Config(
        app, log_level="error", access_log=False, server_header=False, date_header=False, lifespan="off", ws="none"
    )
    announce(address)
    if show and _has_display():
        # The system holds requests back until the server is there.
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    with listening:
        uvicorn.Server(config).run(sockets=[listening])


def _listen(port: int | None) -> socket.socket:
    """Take the port that was asked for; else the usual one, or any that is free."""
    if port is not None:
        try:
            return socket.create_server((HOST, port))
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise InputError(f"port {port} cannot be used ({why}); choose another, or leave --port away") from error
    try:
        return socket.create_server((HOST, USUAL_PORT))
    except OSError:
        return socket.create_server((HOST, 0))


def _has_display() -> bool:
    """Say whether a browser would open in a window, and not in the terminal."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
