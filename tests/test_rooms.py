"""The rooms of the house: who may import whom, as pyproject.toml has it, and nobody gets in by a back door."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "stepe"
PYPROJECT = ROOT / "pyproject.toml"
SETTINGS = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]
(LAYERS,) = (contract for contract in SETTINGS["contracts"] if contract["type"] == "layers")
ORDER: list[str] = LAYERS["layers"]
"""a room imports only rooms that come later"""
WITHOUT_TORCH = next(contract for contract in SETTINGS["contracts"] if contract["name"] == "Rooms that know no torch")
PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE)
FREE = {"errors", "files"}
"""everybody may import them"""


def lint(source: Path, folder: Path) -> tuple[int, str]:
    """What import-linter says of the package ``stepe`` that lies in a folder."""
    code = (
        "import sys; from importlinter.cli import lint_imports; "
        f"sys.exit(lint_imports({str(PYPROJECT)!r}, cache_dir={str(folder / 'cache')!r}, no_logo=True))"
    )
    options = {"env": os.environ | {"PYTHONPATH": str(source)}, "cwd": folder, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-c", code], check=False, **options)
    return done.returncode, done.stdout + done.stderr


def test_every_room_keeps_to_the_contracts(tmp_path):
    code, said = lint(SOURCE.parent, tmp_path)
    assert code == 0, said


@pytest.mark.parametrize(
    ("module", "content", "told"),
    [
        ("tables/odd.py", "def lazily():\n    import stepe.data", "stepe.tables is not allowed to import stepe.data"),
        ("loop/draws.py", "import torch", "stepe.loop.draws is not allowed to import torch"),
        ("data/odd.py", "import stepe.loop.probe", "stepe.data is not allowed to import torch"),
        ("attic/__init__.py", "", "attic"),
        ("attic.py", "", "attic"),
    ],
    ids=["upwards", "torch", "torch by a detour", "a room without a place", "a module on the top floor"],
)
def test_the_contracts_notice(tmp_path, module, content, told):
    files = {name.removeprefix("stepe.").replace(".", "/") + ".py" for name in WITHOUT_TORCH["source_modules"]}
    files |= {"__init__.py", "loop/probe.py", *(f"{room}/__init__.py" for room in ORDER)}
    for name in (name for name in files if name.removesuffix(".py") not in ORDER):
        (tmp_path / "stepe" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "stepe" / name).write_text("import torch" if name == "loop/probe.py" else "")
    assert lint(tmp_path, tmp_path)[0] == 0
    (tmp_path / "stepe" / module).parent.mkdir(exist_ok=True)
    (tmp_path / "stepe" / module).write_text(content)
    code, said = lint(tmp_path, tmp_path)
    assert code != 0
    assert told in said


def test_there_are_hardly_any_exceptions():
    assert LAYERS["exhaustive"]
    assert LAYERS["exhaustive_ignores"] == ["__main__"]
    assert sum(len(contract.get("ignore_imports", [])) for contract in SETTINGS["contracts"]) <= 3


def test_nothing_lies_on_the_top_floor():
    assert {path.stem for path in SOURCE.glob("*.py")} == {"__init__", "__main__", "errors", "files"}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_every_package_says_what_it_may_import(package):
    told = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8")))
    assert told is not None
    assert re.search(r"May\s+import\s", told)


def may_import(room: str) -> set[str]:
    """The rooms that the docstring of a room allows."""
    told = ast.get_docstring(ast.parse((SOURCE / room / "__init__.py").read_text(encoding="utf-8"))) or ""
    sentence = re.split(r"May\s+import", told)[1].split(".")[0]
    named = set(re.findall("``(.+?)``", sentence))
    if "every room" in sentence:
        return set(ORDER)
    return set(ORDER) - named if "all but" in sentence else named


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("stepe", exclude_type_checking_imports=True, cache_dir=None)


@pytest.mark.parametrize("room", [room for room in ORDER if room not in FREE])
def test_a_room_imports_what_it_says_and_says_what_it_may(graph, room):
    inside = [module for module in graph.modules if f"{module}.".startswith(f"stepe.{room}.")]
    names = {name for module in inside for name in graph.find_modules_directly_imported_by(module)} - {"stepe"}
    imported = {name.split(".")[1] for name in names}
    assert imported - {room} <= may_import(room) | FREE
    assert may_import(room) - {room} <= set(ORDER[ORDER.index(room) :])


def test_the_page_of_the_architecture_lists_the_rooms_in_their_order():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page[page.index("| room |") : page.index("## The nouns")]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    assert [name for cell in cells for name in re.findall(r"`(\w+)/?`", cell)] == ORDER
