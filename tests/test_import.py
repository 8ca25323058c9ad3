import json
import subprocess
import sys

import pytest

HEAVY = {"pandas", "sklearn", "scipy", "matplotlib", "rich", "typer", "jinja2", "PIL", "pyarrow", "safetensors"}
HEAVY |= {"lightning", "transformers", "accelerate"}


def loaded_after(code: str) -> set[str]:
    """The top-level modules of a fresh interpreter after running some code."""
    report = "import sys, json; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_stepe_loads_neither_torch_nor_scikit_learn():
    loaded = loaded_after("import stepe")
    assert "stepe" in loaded
    assert not loaded & {"torch", "numpy", *HEAVY}


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
