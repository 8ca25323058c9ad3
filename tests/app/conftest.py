"""What the recipes' tests share."""

import pytest


@pytest.fixture
def _elsewhere(tmp_path, monkeypatch) -> None:
    """In a folder of their own, and without the report, which takes longer than all else."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stepe.report.html.write_report", lambda run: run.path)
