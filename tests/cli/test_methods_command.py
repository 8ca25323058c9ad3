"""``stepe methods``."""

import json

import pytest

from stepe.methods import EVERY_METHOD


@pytest.fixture(autouse=True)
def _wide(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


def test_every_method_has_a_line(call):
    ended = call("methods")
    assert (ended.code, ended.err) == (0, "")
    lines = [line for line in ended.out.splitlines() if line.startswith("│")]
    assert [line.split()[1] for line in lines] == list(EVERY_METHOD)
    assert all(EVERY_METHOD[line.split()[1]].summary in line for line in lines)


def test_with_data_the_options_are_those_it_would_get(call):
    ended = call("methods", "digits", "--method", "step-e,gce", "--epochs", "30")
    assert (ended.code, ended.err) == (0, "")
    text = " ".join(ended.out.split())
    assert "step-e │ rho_max 0.45, warmup 5, score loss" in text
    assert "gce │ q 0.7 │" in text


def test_json_holds_them_all(call):
    found = json.loads(call("methods", "--json").out)
    assert list(found) == list(EVERY_METHOD)
    assert found["step-e"]["options"]["rho_max"] is None
    for_data = json.loads(call("methods", "digits", "--rho-max", "0.2", "--method", "step-e,mixup", "--json").out)
    assert for_data["step-e"]["options"]["rho_max"] == 0.2
    assert for_data["mixup"]["summary"] == EVERY_METHOD["mixup"].summary


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("methods --method stepe", "margins, prune; did you mean step-e or step-e-plus?"),
        ("methods nothing", "'nothing' is neither a file here nor a known data set"),
        ("methods digits --rho-max 2", "rho_max is 2.0; it must be a number in [0, 1)"),
        ("methods digits --out run", "No such option: --out"),
    ],
)
def test_mistakes_are_one_line(call, line, told):
    ended = call(*line.split())
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert told in ended.err
