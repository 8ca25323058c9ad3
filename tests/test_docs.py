"""Numbers in the documents are those in the result files, and what they point to is there."""

import ast
import importlib
import importlib.util
import json
import re
import sys
from functools import reduce
from pathlib import Path
from statistics import mean, stdev

import pytest

from stepe.methods import EVERY_METHOD
from stepe.reproduction.bench import markdown
from stepe.reproduction.claims import write_claims
from stepe.reproduction.tables import write_tables

ROOT = Path(__file__).parents[1]
RESEARCH = ROOT / "docs" / "research"
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
CODE = sorted(path for folder in ("src", "examples", "tools") for path in (ROOT / folder).rglob("*.py"))
NAME = re.compile(r"(?<![\w./-])stepe(?:\.[A-Za-z_]\w*)+")
ROOM = re.compile(rf"`((?:{'|'.join(path.parent.name for path in ROOT.glob('src/stepe/*/__init__.py'))})(?:\.\w+)+)`")
NO_NAMES = {"stepe.pt", "stepe.samples.parquet", "stepe.samples.json", "stepe.training.epoch"}
"""files of runs, and what a variable holds"""
FILE = re.compile(r"(?<![\w./<-])(?:docs|src|tests|benchmarks|tools|examples|results)/[\w./*-]*\w")
MODULE = re.compile(r"`((?:\w+/)*\w+\.py)`")
INTEGRATIONS = sorted((ROOT / "docs" / "integrations").glob("*.md"))


@pytest.mark.parametrize(("name", "document"), [("digits", "docs/methods.md"), ("scale", "docs/scale.md")])
def test_documents_show_the_tables_of_the_benchmarks_as_measured(name, document):
    spec = importlib.util.spec_from_file_location(f"{name}_benchmark", ROOT / "benchmarks" / f"{name}.py")
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    rows = json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    assert benchmark.table(rows) in (ROOT / document).read_text(encoding="utf-8")


def test_the_reference_of_the_options_is_as_the_signatures_declare_them(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    page = importlib.import_module("options_page")
    assert page.PAGE.read_text(encoding="utf-8") == page.page(), "run: make docs"


def test_how_well_the_noise_rate_is_found_out_is_shown_as_measured(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    benchmark = importlib.import_module("noise_rate")
    rows = json.loads((ROOT / "results" / "noise-rate.json").read_text(encoding="utf-8"))["rows"]
    assert benchmark.table(rows) in (RESEARCH / "noise-rate.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("table", "document"),
    [
        ("table", RESEARCH / "versus-cleanlab.md"),
        ("overview", RESEARCH / "versus-cleanlab.md"),
    ],
)
def test_what_stepe_finds_beside_cleanlab_is_shown_as_measured(table, document, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    benchmark = importlib.import_module("versus_cleanlab")
    rows = json.loads((ROOT / "results" / "versus-cleanlab.json").read_text(encoding="utf-8"))["rows"]
    assert getattr(benchmark, table)(rows) in document.read_text(encoding="utf-8")


def test_what_the_default_gives_beside_step_e_is_shown_as_measured(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    benchmark = importlib.import_module("defaults")
    rows = json.loads((ROOT / "results" / "defaults.json").read_text(encoding="utf-8"))["rows"]
    assert benchmark.table(rows) in (RESEARCH / "step-e-plus.md").read_text(encoding="utf-8")


def test_what_peers_give_on_digits_is_shown_as_measured(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    benchmark = importlib.import_module("peers")
    rows = json.loads((ROOT / "results" / "peers.json").read_text(encoding="utf-8"))["rows"]
    page = (RESEARCH / "methods.md").read_text(encoding="utf-8")
    assert benchmark.table(rows) in page
    (run,) = json.loads((ROOT / "results" / "step-e-plus" / "peers.json").read_text(encoding="utf-8"))["runs"]
    assert f"only {run['method']} was run so far: {run['test_accuracy']:.1f}%" in page


def test_what_was_worse_is_measured_again_on_other_seeds():
    rows = json.loads((ROOT / "results" / "defaults-again.json").read_text(encoding="utf-8"))["rows"]
    ahead = [row["step-e-plus"]["accuracy"] - row["step-e"]["accuracy"] for row in rows]
    said = f"ahead by {mean(ahead):.3f} ± {stdev(ahead) / len(ahead) ** 0.5:.3f}".replace("0.", ".")
    assert said in " ".join((RESEARCH / "step-e-plus.md").read_text(encoding="utf-8").split())


def test_what_the_known_rate_gives_on_human_noise_is_what_the_test_set_says(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    benchmark, study = importlib.import_module("noise_rate"), ROOT / "results" / "step-e-plus"
    (row,) = [row for row in benchmark.human_rows(study) if row["data"] == "cifar100n"]
    runs = json.loads((study / "cifar100n.json").read_text(encoding="utf-8"))["runs"]
    (told,) = [run for run in runs if run["seed"] == 42 and run["variant"] == "step-e-plus, later ramp, windows"]
    assert row["accuracy_known"] == pytest.approx(told["test_accuracy"] / 100)


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("screen", "screen_table"),
        ("finalists", "finalists_table"),
        ("cifar100n", "final_table"),
        ("backbone", "final_table"),
        ("backbone-screen", "finalists_table"),
        ("long", "final_table"),
        ("ramp-screen", "ramps_table"),
        ("found", "found_table"),
        ("cifar10n", "labels_table"),
        ("synthetic", "synthetic_table"),
        ("cost", "cost_table"),
    ],
)
def test_the_study_of_step_e_plus_is_shown_as_measured(name, table):
    spec = importlib.util.spec_from_file_location("step_e_plus_benchmark", ROOT / "benchmarks" / "step_e_plus.py")
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    found = json.loads((ROOT / "results" / "step-e-plus" / f"{name}.json").read_text(encoding="utf-8"))
    assert getattr(benchmark, table)(found["rows" if name == "cost" else "runs"]) in (
        RESEARCH / "step-e-plus.md"
    ).read_text(encoding="utf-8")


def test_what_limits_step_e_plus_is_said_as_measured(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    tool = importlib.import_module("step_e_plus_figure")
    runs = {panel.file: tool.read(panel, ROOT / "results" / "step-e-plus") for panel in tool.PANELS}
    wrong = {file: tool.wrong_among_kept(run) for file, run in runs.items()}
    in_the_end = {file: f"{shares[-1]:.1f}%" for file, shares in wrong.items()}
    page = " ".join((RESEARCH / "step-e-plus.md").read_text(encoding="utf-8").split())
    said = f"kept in the end, {in_the_end['cifar100n']} are wrong, with the paper's network {in_the_end['backbone']}"
    assert said in page
    assert f"kept in the end are wrong as after 100 epochs ({in_the_end['long']})" in page
    half = next(epoch for epoch, share in enumerate(wrong["synthetic"]) if share < 50)
    assert f"every second label that is trained on is wrong until epoch {half}" in page


def test_what_300_epochs_do_to_the_list_is_said_as_measured():
    (run,) = json.loads((ROOT / "results" / "step-e-plus" / "long.json").read_text(encoding="utf-8"))["runs"]
    page = " ".join((RESEARCH / "step-e-plus.md").read_text(encoding="utf-8").split())
    best = max(run["history"], key=lambda row: row["auroc"] or 0)
    peak = f"highest after epoch {best['epoch'] + 1}, at {best['auroc']:.1f}%"
    assert f"{peak}, and falls to {run['noise_auroc']:.1f}% by the last" in page
    assert f"The last epoch is {run['test_accuracy'] - 70.1:.1f} points ahead of DivideMix's" in page


def test_the_readme_says_what_step_e_plus_reaches():
    runs = json.loads((ROOT / "results" / "step-e-plus" / "cifar100n.json").read_text(encoding="utf-8"))["runs"]
    preset = [run for run in runs if run["variant"] == "step-e-plus, later ramp, windows"]
    accuracy, f1, auroc = (mean(run[name] for run in preset) for name in ("test_accuracy", "noise_f1", "noise_auroc"))
    said = f"reaches {accuracy:.1f}% with that network in 100 epochs, F1 {f1:.1f}%, AUROC {auroc:.1f}%"
    page = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert said in page
    (long,) = json.loads((ROOT / "results" / "step-e-plus" / "long.json").read_text(encoding="utf-8"))["runs"]
    assert f"and {long['test_accuracy']:.1f}% in 300 (one seed)" in page


@pytest.mark.parametrize("limitation", ["learnable", "ramp", "tail"])
def test_the_limitations_are_shown_as_measured(limitation, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    benchmark = importlib.import_module("limitations")
    rows = json.loads((ROOT / "results" / "limitations.json").read_text(encoding="utf-8"))["rows"]
    assert benchmark.table(limitation, rows) in (RESEARCH / "limitations.md").read_text(encoding="utf-8")


def test_the_page_of_methods_has_every_method_with_its_options():
    spec = importlib.util.spec_from_file_location("methods_table", ROOT / "tools" / "methods_table.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert tool.table() in page
    assert all(f"(../src/stepe/methods/{path.name})" in page for path in peer_files())


def peer_files() -> list[Path]:
    """Where the methods of other papers are."""
    others = [kind for kind in EVERY_METHOD.values() if kind.paper and "Step-E" not in kind.paper]
    return [Path(sys.modules[kind.__module__].__file__) for kind in others]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), target


@pytest.mark.parametrize("path", [*DOCUMENTS, *CODE], ids=lambda path: str(path.relative_to(ROOT)))
def test_names_and_files_that_are_spoken_of_are_there(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        nodes = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr))
        text = "\n".join(str(node.value) for node in nodes if isinstance(node, ast.Constant))
    names = {*NAME.findall(text), *(f"stepe.{name}" for name in ROOM.findall(text))} - NO_NAMES
    assert [name for name in sorted(names) if not exists(name)] == []
    assert [name for name in sorted({*FILE.findall(text)}) if not any(ROOT.glob(name))] == []
    assert [name for name in sorted({*MODULE.findall(text)}) if Path(name).name not in MODULES] == []


MODULES = {
    path.name
    for folder in ("src", "benchmarks", "examples", "tools", "tests")
    for path in (ROOT / folder).rglob("*.py")
}


def exists(name: str) -> bool:
    """Whether a dotted name leads to a module, or to something in one; what needs a package that is not here may."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError as error:
            if str(error.name).startswith("stepe"):
                continue
            return True
        try:
            reduce(getattr, parts[end:], found)
        except AttributeError:
            return False
        return True
    return False


@pytest.mark.parametrize(
    "name", ["main", "noise", "per-seed", "cifar10n", "cifar10n-more", "cifar-stem", "sensitivity", "claims"]
)
def test_the_reproduction_shows_the_papers_tables_as_written(name):
    table = (ROOT / "results" / "paper" / "tables" / f"{name}.md").read_text(encoding="utf-8").strip()
    assert table in (RESEARCH / "reproduction.md").read_text(encoding="utf-8")


def test_the_papers_tables_are_those_of_the_result_files(tmp_path):
    results = ROOT / "results" / "paper"
    for path in [*write_tables(results, tmp_path), *write_claims(results, tmp_path)]:
        assert path.read_text(encoding="utf-8") == (results / "tables" / path.name).read_text(encoding="utf-8")


def lines_of_table(name: str) -> list[str]:
    """Return the lines of a table of the paper."""
    lines = (ROOT / "results" / "paper" / "tables" / f"{name}.md").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("|")]


def test_the_readme_shows_the_papers_backbone_and_the_usual_one_as_written():
    page = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert " ".join(lines_of_table("main")) in page
    cells = [[cell.strip() for cell in line.split("|")] for line in lines_of_table("cifar-stem")]
    stems = {name: f"{imagenet}% to {cifar}%" for _, name, imagenet, cifar, *_ in cells}
    assert f"Step-E goes from {stems['Step-E']}, plain training from {stems['Baseline']}, clean labels from" in page
    assert f"clean labels from {stems['Oracle (clean labels)']} (seed 42)" in page


def test_the_runs_of_your_data_are_shown_as_they_were():
    results = json.loads((ROOT / "results" / "shown-runs.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "your-data.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\$ (.+)\n((?:.*\n)+?)```", page, re.MULTILINE)
    assert shown
    assert all(results["outputs"][command] == output.rstrip("\n") for command, output in shown)
    found, similar = results["vehicles"], {"opel", "saab"}
    pairs = sum(count for given, suggested, count in found["flagged_right"] if {given, suggested} == similar)
    right = found["flagged"] - found["flagged_wrong"]
    said = " ".join(page.split())
    assert f"a table of {found['rows']} vehicles in four classes. {found['wrong']} labels were changed" in said
    assert f"{found['flagged_wrong']} of the {found['flagged']} flagged labels are among the {found['wrong']}" in said
    assert f"Of the other {right}, {pairs} are an *opel* that looks like a *saab*" in said
    assert f"Of the {found['wrong']} wrong labels of that table {found['wrong_after_relabelling']} are left" in said


def test_the_ladder_of_speeds_is_the_measured_one():
    rows = json.loads((ROOT / "results" / "bench.json").read_text(encoding="utf-8"))["rows"]
    assert markdown(rows) in (RESEARCH / "performance.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", INTEGRATIONS, ids=lambda path: path.name)
def test_integrations_show_their_examples_as_they_are(page):
    text = page.read_text(encoding="utf-8")
    examples = re.findall(r"\]\(\.\./\.\./examples/([\w/]+\.py)\)", text)
    assert examples
    for name in examples:
        code = (ROOT / "examples" / name).read_text(encoding="utf-8").rstrip("\n")
        assert f"```python\n{code}\n```" in text, name


AUDIT_TABLES = (
    "in_short",
    "overview",
    "goals_table",
    "by_noise",
    "by_data",
    "rankings",
    "rates",
    "clean_labels",
    "corrections",
)


@pytest.mark.parametrize("table", AUDIT_TABLES)
def test_what_audits_find_beside_practice_is_shown_as_measured(table, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import audit_tables

    rows = json.loads((ROOT / "results/audit.json").read_text(encoding="utf-8"))["rows"]
    page = ROOT / ("README.md" if table == "in_short" else "docs/research/audit.md")
    assert getattr(audit_tables, table)(rows) in page.read_text(encoding="utf-8")
