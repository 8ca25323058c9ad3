"""The runs that docs/your-data.md shows: ``python tools/shown_runs.py`` writes results/shown-runs.json and shows them.

The table is the vehicles of $STEPE_DATA (docs/data.md), a tenth of their labels changed at random.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import stepe
from stepe.run.environment import environment

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "results" / "shown-runs.json", ROOT / "docs" / "your-data.md"
SHOWN = re.compile(r"(?<=^\$ )(.+)\n(?:.*\n)+?(?=```)", re.MULTILINE)
WRONG, SEED = 0.1, 7
COMMANDS = ("stepe clean vehicles.csv --label kind --id number", "stepe cleaned latest --relabel")


def plant(folder: Path, data: Path) -> pd.Series:
    """Write the table with wrong labels into a folder, and return the true ones by number."""
    table = pd.read_parquet(data / "tables" / "vehicle.parquet").rename(columns={"__label": "kind"})
    table.insert(0, "number", [f"{number:03d}" for number in range(1, len(table) + 1)])
    true = table.set_index("number")["kind"].astype(object)
    draws, names = np.random.default_rng(SEED), sorted(set(true))
    wrong = draws.random(len(table)) < WRONG
    table["kind"] = [
        draws.choice([name for name in names if name != label]) if is_wrong else label
        for label, is_wrong in zip(true, wrong, strict=True)
    ]
    table.to_csv(folder / "vehicles.csv", index=False)
    return true


def said(command: str, folder: Path) -> str:
    """Run a command as a person types it, and return what it prints."""
    words = [sys.executable, "-m", *command.split()]
    settings = os.environ | {"COLUMNS": "80", "PYTHONPATH": str(Path(stepe.__file__).parents[1])}
    done = subprocess.run(
        words, cwd=folder, env=settings, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


def labels_in(path: Path) -> pd.Series:
    """Read the labels of a table by number."""
    return pd.read_csv(path, dtype=str).set_index("number")["kind"]


def main() -> None:
    """Make the runs, and count what is right in them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        true = plant(folder, Path(os.environ["STEPE_DATA"]))
        outputs = {command: said(command, folder) for command in COMMANDS}
        run = folder / "runs" / "vehicles-1"
        issues = pd.read_csv(run / "issues.csv", dtype=str)
        given, cleaned = labels_in(folder / "vehicles.csv"), labels_in(run / "cleaned.csv")
    right = issues["given_label"] == issues["id"].map(true)
    pairs = issues[right].groupby(["given_label", "suggested_label"]).size().reset_index()
    found = {
        "rows": len(true),
        "wrong": int((given != true).sum()),
        "flagged": len(issues),
        "flagged_wrong": int((~right).sum()),
        "flagged_right": pairs.to_numpy().tolist(),
        "wrong_after_relabelling": int((cleaned != true).sum()),
    }
    measured = environment(seed=SEED, device="cpu", device_name="cpu", threads=1)
    result = {"outputs": outputs, "vehicles": found, "environment": measured}
    RESULTS.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(SHOWN.sub(lambda shown: f"{shown[1]}\n{outputs[shown[1]]}\n", page), encoding="utf-8")


if __name__ == "__main__":
    main()
