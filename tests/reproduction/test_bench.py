"""``stepe bench`` on a few pictures: everything that was asked for is measured, and nothing else."""

import json
import sys

import pytest
import torch

import stepe.cli
from stepe.reproduction.bench import Setting, flops_per_sample, measure


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch) -> None:
    """Compiling takes a minute; what is compiled is tested with the engines."""
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)


def run(*words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["stepe", "bench", *words])
    with pytest.raises(SystemExit) as ended:
        stepe.cli.main()
    return ended.value.code


def test_each_engine_is_measured_alone_and_all_but_the_eager_one_in_fleets():
    setting = Setting(torch.device("cpu"), images=8, batch=4, stems=("imagenet",), fleets=(1, 2))
    found = measure(setting)
    assert [(row["engine"], row["fleet"]) for row in found["rows"]] == [
        ("eager", 1),
        ("resident", 1),
        ("resident", 2),
        ("compiled", 1),
        ("compiled", 2),
    ]
    for row in found["rows"]:
        assert row["ms_per_step"] == pytest.approx(1000 * row["seconds_per_epoch"] / 2)
        assert row["tflops"] * row["seconds_per_epoch"] == pytest.approx(flops_per_sample("imagenet") * 8 / 1e12)
        assert row["share_of_floor"] == pytest.approx(row["tflops"] / found["peak_tflops"])
        assert (row["probe_seconds"] is None) == (row["fleet"] > 1)


def test_the_work_of_a_picture_is_that_of_resnet18():
    # He et al. count 1.8e9 multiply-adds for 224 x 224; 32 x 32 is 1/49 of it, three times for forward and backward.
    assert flops_per_sample("imagenet") == pytest.approx(2 * 3 * 1.8e9 / 49, rel=0.15)
    assert flops_per_sample("cifar") > 10 * flops_per_sample("imagenet")


def test_the_command_prints_a_table_and_writes_a_file(monkeypatch, capsys, tmp_path):
    out = tmp_path / "new" / "bench.json"
    words = ("--images", "8", "--batch", "4", "--stems", "imagenet", "--engines", "resident", "--fleets", "1")
    assert run(*words, "--device", "cpu", "--out", str(out), monkeypatch=monkeypatch) == 0
    printed = capsys.readouterr()
    assert "resident" in printed.out
    assert str(out) in printed.out
    result = json.loads(out.read_text())
    assert result["images"] == 8
    assert result["environment"]["device"] == "cpu"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--stems", "vgg"), "unknown stem 'vgg'"),
        (("--engines", "warp"), "unknown engine 'warp'"),
        (("--fleets", "0"), "fleets are '0'"),
        (("--fleets", "many"), "fleets are 'many'"),
        (("--device", "tpu9"), "tpu9"),
    ],
)
def test_wrong_values_are_named(words, message, monkeypatch, capsys, tmp_path):
    out = tmp_path / "bench.json"
    assert run(*words, "--out", str(out), monkeypatch=monkeypatch) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()
