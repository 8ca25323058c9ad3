"""Small runs that the report's tests share."""

import json
from pathlib import Path

import numpy as np
import pytest

import stepe
from made_run import make_run

NASTY = ("<script>alert(1)</script>", '"><b>bold</b> & $x^2$', "{{ 7 * 7 }} ワイン")


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> stepe.Run:
    """Pictures, planted noise, and plain training and the oracle beside it."""
    return stepe.clean("digits", epochs=3, out=tmp_path_factory.mktemp("runs") / "digits", device="cpu")


@pytest.fixture(scope="session")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> stepe.Run:
    """A method that drops nothing, alone."""
    out = tmp_path_factory.mktemp("runs") / "plain"
    return stepe.clean("digits", method="plain", compare=False, epochs=2, out=out, device="cpu")


@pytest.fixture(scope="session")
def features_run(tmp_path_factory: pytest.TempPathFactory) -> stepe.Run:
    """No pictures, no truth, and class names that mean harm."""
    draw = np.random.default_rng(0)
    label = draw.integers(0, 3, 150)
    x = 3 * draw.normal(size=(3, 5))[label] + draw.normal(size=(150, 5))
    wrong = draw.random(150) < 0.15
    names = np.array(NASTY)[np.where(wrong, (label + 1) % 3, label)]
    out = tmp_path_factory.mktemp("runs") / "features"
    return stepe.clean((x, names), rho_max=0.2, epochs=5, out=out, device="cpu")


@pytest.fixture(scope="session")
def audited_run(tmp_path_factory: pytest.TempPathFactory) -> stepe.Run:
    """What rounds of judges leave: no network, no losses, no test data."""
    run = make_run(tmp_path_factory.mktemp("runs") / "audited", 40, kind="text")
    run.samples[:80].to_parquet(run.path / "samples.parquet", index=False)
    rounds = [
        {"epoch": i, "kept": kept, "dropped": 80 - kept, "drop_fraction": 1 - kept / 80, "noise_rate": 0.4, "judge": {}}
        for i, kept in enumerate((80, 45, 42))
    ]
    (run.path / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rounds))
    summary = {"method": "audit", "samples": 80, "flagged": 40, "dropped": 38, "seconds": 2.0}
    rate = {"rate": 0.4, "low": 0.31, "high": 0.52}
    (run.path / "summary.json").write_text(json.dumps(summary | {"noise_rate": rate}))
    return stepe.Run(run.path)


@pytest.fixture(scope="session")
def fitted_run(tmp_path_factory: pytest.TempPathFactory) -> stepe.Run:
    """What fit() leaves for a model of one's own: no test data, no names, no request."""
    import torch

    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 4, generator=draw), torch.randint(3, (60,), generator=draw)
    path: Path = tmp_path_factory.mktemp("runs") / "fitted"
    stepe.fit(torch.nn.Linear(4, 3), x, y, rho_max=0.3, epochs=2, run=path, device="cpu")
    return stepe.Run(path)
