"""To add an option of ``stepe clean`` is one line, in its signature."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stepe
from command import Ended

DECLARED = 'Annotated[int | Literal["auto"], Option("How deep.", "Training", metavar="LAYERS", min=1)]'
PLACE = "    out: Out = None,\n"
CALLS = """
import contextlib, io, json, sys
from stepe.cli import main
ended = []
for line in sys.argv[1:]:
    sys.argv, out, err = ["stepe", *line.split()], io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as left:
            ended.append((left.code, out.getvalue(), err.getvalue()))
print(json.dumps(ended))
"""


@pytest.fixture(scope="module")
def changed(tmp_path_factory) -> Path:
    """The source as somebody left it who added a line to the signature of ``stepe.clean``."""
    source = tmp_path_factory.mktemp("changed")
    shutil.copytree(Path(stepe.__file__).parent, source / "stepe", ignore=shutil.ignore_patterns("__pycache__"))
    path = source / "stepe" / "app" / "clean.py"
    whole = path.read_text(encoding="utf-8")
    assert whole.count(PLACE) == 1
    imports = "from typing import Annotated, Literal\nfrom stepe.options import Option\n"
    path.write_text(imports + whole.replace(PLACE, f"    depth: {DECLARED} = 3,\n{PLACE}"), encoding="utf-8")
    return source


def python(source: Path, *words: str) -> str:
    env = os.environ | {"PYTHONPATH": str(source), "COLUMNS": "200"}
    return subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True, env=env).stdout


def test_an_option_that_is_added_to_the_signature_is_found_everywhere(changed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labels = np.arange(60) % 2
    features = np.random.default_rng(0).normal(size=(60, 3)) + 3 * labels[:, None]
    np.savez("mine.npz", features=features, labels=labels)
    lines = (
        *("clean --help", "clean mine.npz --depth 0", "clean mine.npz --depth x", "clean mine.npz --dpeth 2"),
        "clean mine.npz --method plain --epochs 1 --depth 5 --out run -q",
        *("clean --resume run --depth 5 -q", "clean --resume run --depth auto"),
    )
    help, low, word, typo, done, again, other = (
        Ended(*each) for each in json.loads(python(changed, "-c", CALLS, *lines))
    )
    assert "--depth LAYERS How deep. [default: 3]" in " ".join(help.out.split())
    assert "depth is 0; it must be a whole number, at least 1, or 'auto'" in low.err
    assert "--depth is 'x'; give a whole number, or auto" in word.err
    assert "did you mean --depth" in typo.err
    assert done.code == 0
    assert json.loads(Path("run/config.json").read_text())["options"]["depth"] == 5
    assert again.code == 0
    assert "depth was 5, not 'auto'" in other.err
    page = python(changed, str(Path(__file__).parents[2] / "tools" / "options_page.py"), "--print")
    assert "| `depth` | a whole number, at least 1, or 'auto' | 3 | How deep. |" in page
