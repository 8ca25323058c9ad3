"""A real browser for the tests: the system's Chromium, driven by Playwright; nothing is downloaded."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@dataclass
class Opened:
    """A page, with what went wrong in it and what it asked for."""

    page: Any
    errors: list[str] = field(default_factory=list)
    """of the console, and those that no script caught"""
    requests: list[str] = field(default_factory=list)
    """addresses, embedded pictures excepted"""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The browser; tests are skipped without one, or fail where ``STEPE_REQUIRE_BROWSER`` is 1."""
    refuse = pytest.fail if os.environ.get("STEPE_REQUIRE_BROWSER") == "1" else pytest.skip
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        refuse(f"there is no {', '.join(NAMES[:-1])} or {NAMES[-1]} here; install one of them")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        refuse("playwright is not installed; install stepe[dev]")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Open a file or an address in a fresh profile: ``open_page(target, width=, height=, **context_options)``."""
    contexts = []

    def open_page(
        target: str | Path, width: int = 1280, height: int = 800, context: Any = None, **options: Any
    ) -> Opened:
        if context is None:
            context = browser.new_context(viewport={"width": width, "height": height}, **options)
            contexts.append(context)
        opened = Opened(context.new_page())
        opened.page.set_default_timeout(120_000)
        opened.page.on("console", lambda message: message.type == "error" and opened.errors.append(message.text))
        opened.page.on("pageerror", lambda error: opened.errors.append(str(error)))
        opened.page.on(
            "request", lambda request: None if request.url.startswith("data:") else opened.requests.append(request.url)
        )
        opened.page.goto(target.resolve().as_uri() if isinstance(target, Path) else target)
        return opened

    yield open_page
    for context in contexts:
        context.close()
