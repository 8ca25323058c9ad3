"""Networks from their descriptions, ours and other people's."""

import json
import sys

import pytest
import torch

from stepe import InputError, RunError
from stepe.models.build import build
from stepe.models.pretrained import check_model

DESCRIPTIONS = [
    ({"name": "mlp", "inputs": 4, "classes": 3, "hidden": [8], "dropout": 0.5}, torch.zeros(2, 4)),
    ({"name": "text", "vocabulary": 9, "classes": 3}, torch.zeros(2, 5, dtype=torch.int32)),
    ({"name": "tabular", "numbers": 1, "codes": [3], "classes": 3}, torch.zeros(2, 2)),
    ({"name": "resnet18", "classes": 3, "stem": "cifar"}, torch.zeros(2, 3, 8, 8)),
]


@pytest.mark.parametrize(("description", "x"), DESCRIPTIONS, ids=[d["name"] for d, _ in DESCRIPTIONS])
def test_a_description_is_json_and_makes_the_network(description, x):
    assert build(json.loads(json.dumps(description)))(x).shape == (2, 3)


@pytest.mark.parametrize("description", [{}, {"name": "odd"}, {"name": "mlp"}, {"name": "mlp", "depth": 3}])
def test_a_damaged_description_says_so(description):
    with pytest.raises(RunError, match="the description of the model cannot be read"):
        build(description)


@pytest.mark.parametrize(("model", "kind", "package"), [("timm:x", "images", "timm"), ("hf:x", "text", "transformers")])
def test_a_missing_package_is_named_with_its_extra(monkeypatch, model, kind, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"needs the package {package}; install it with: pip install 'stepe\["):
        check_model(model, kind)


def test_timm_gives_networks_for_pictures():
    pytest.importorskip("timm")
    model = build({"name": "pretrained", "model": "timm:resnet10t", "classes": 3}, pretrained=False)
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 3)
    with pytest.raises(InputError, match="model 'timm:nothing' cannot be loaded"):
        build({"name": "pretrained", "model": "timm:nothing", "classes": 3}, pretrained=False)
