import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"pandas", "sklearn", "scipy", "matplotlib", "rich", "typer", "jinja2", "PIL", "pyarrow", "safetensors"}
HEAVY |= {"lightning", "transformers", "accelerate"}


def loaded_after(code: str, folder: Path | None = None) -> set[str]:
    """The modules of a fresh interpreter after running some code, and the packages that they belong to."""
    report = "import sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True, cwd=folder
    )
    names = json.loads(done.stdout.splitlines()[-1])
    return {*names, *(name.partition(".")[0] for name in names)}


def test_importing_stepe_loads_neither_torch_nor_scikit_learn():
    loaded = loaded_after("import stepe")
    assert "stepe" in loaded
    assert not loaded & {"torch", "numpy", *HEAVY}


@pytest.mark.parametrize("command", ["--help", "clean table.csv --label label --rho-max 0.2 --epochs 2 --device cpu"])
def test_the_reproduction_of_the_paper_is_not_loaded_with_what_users_of_their_own_data_run(command, tmp_path):
    rows = [f"{i % 7},{i % 5},{'cat' if i % 7 > 3 else 'dog'}" for i in range(60)]
    (tmp_path / "table.csv").write_text("\n".join(["a,b,label", *rows]), encoding="utf-8")
    code = (
        f"import sys; from stepe.cli import main; sys.argv = ['stepe', *{command!r}.split()]\n"
        "try: main()\n"
        "except SystemExit as left: assert not left.code"
    )
    loaded = loaded_after(code, tmp_path)
    assert "stepe.cli.app" in loaded
    assert not [name for name in loaded if name.startswith("stepe.reproduction")]
    assert ("stepe.training.fit" in loaded) == (command != "--help")


@pytest.mark.parametrize("command", ["--help", "clean --help", "clean digits --no-such-option"])
def test_help_and_mistakes_load_nothing_that_trains(command):
    code = (
        f"import sys; from stepe.cli import main; sys.argv = ['stepe', *{command!r}.split()]\n"
        "try: main()\n"
        "except SystemExit: pass"
    )
    loaded = loaded_after(code)
    assert "stepe.app.clean" in loaded
    assert not loaded & {"torch", "sklearn", "pandas"}


def test_a_whole_run_needs_no_more():
    code = (
        "import torch, stepe\n"
        "x, y = torch.randn(20, 2), torch.arange(20) % 2\n"
        "stepe.fit(torch.nn.Linear(2, 2), x, y, rho_max=0.2, epochs=2, device='cpu', test=(x, y))"
    )
    assert not loaded_after(code) & HEAVY


def test_the_public_names_are_there():
    import stepe

    assert set(stepe.__all__) <= set(dir(stepe))
    for name in ("fit", "Truth", "Result", "InputError", "RunError", "StepeError"):
        assert getattr(stepe, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'fti'"):
        stepe.fti  # noqa: B018
