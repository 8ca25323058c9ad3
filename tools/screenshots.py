"""The screenshots of the documentation: ``python tools/screenshots.py`` writes docs/images/report*.png and review.png.

Needs what the browser tests need: Playwright (in the ``dev`` extra) and a Chromium of the system.
"""

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

import stepe

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
VIEWS = {
    "report": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "report-dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "report-phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "device_scale_factor": 2},
}
COLOURS = 128
"""enough for a page, and a quarter of the bytes"""


def save(screenshot: bytes, path: Path) -> None:
    """Write a screenshot as a small file."""
    image = Image.open(io.BytesIO(screenshot)).convert("RGB")
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def review(run: Path, browser: Browser) -> bytes:
    """The review of a run in which some suspects are decided."""
    command = [sys.executable, "-m", "stepe", "review", str(run), "--no-open", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        page = browser.new_page(**VIEWS["report"])
        page.goto(server.stdout.readline().strip())
        for order, keys in (("#sample", "aaaaakaaaauaaaakaaaa"), ("#ranked", "aaaaaaaa")):
            page.click(order)
            for key in keys:
                page.wait_for_timeout(400)  # somebody looks
                page.keyboard.press(key)
        page.wait_for_selector("#saved.saved")
        page.wait_for_selector(".toast", state="detached")
        screenshot = page.screenshot()
        server.kill()
    return screenshot


def main() -> None:
    """Take them of a run that is there, or of a new one on digits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", nargs="?", type=Path, help="a run folder; by default a new run on digits")
    chosen = parser.parse_args().run
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        if chosen is None:  # as people type it, for the page says what it was made by
            subprocess.run([sys.executable, "-m", "stepe", "clean", "digits"], cwd=folder, check=True)
        run = stepe.Run(chosen or Path(folder) / "runs" / "digits-1")
        page_address = run.report().resolve().as_uri()
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, view in VIEWS.items():
            page = browser.new_page(**view)
            page.goto(page_address)
            save(page.screenshot(), IMAGES / f"{name}.png")
        copied = shutil.copytree(run.path, Path(folder) / "reviewed")  # nobody has decided that about the run itself
        # A large picture in grey would take all the colours.
        Image.open(io.BytesIO(review(copied, browser))).convert("RGB").save(IMAGES / "review.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
