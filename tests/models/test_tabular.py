"""The network for tables."""

import torch

from stepe.models.tabular import Tabular


def test_codes_are_embedded_beside_the_numbers():
    model = Tabular(2, [3, 100], classes=4, hidden=(8,), dropout=0.0)
    assert [tuple(e.weight.shape) for e in model.embeddings] == [(3, 2), (100, 16)]
    x = torch.tensor([[0.5, -1.0, 2.0, 99.0], [0.5, -1.0, 0.0, 99.0]])
    logits = model(x)
    assert logits.shape == (2, 4)
    assert not torch.equal(logits[0], logits[1])


def test_either_kind_of_column_may_be_missing():
    assert Tabular(3, [], classes=2)(torch.randn(5, 3)).shape == (5, 2)
    assert Tabular(0, [4], classes=2)(torch.ones(5, 1)).shape == (5, 2)


def test_weights_keep_the_names_that_runs_were_saved_with():
    names = set(Tabular(2, [3], classes=2, hidden=(8,)).state_dict())
    assert names == {"embeddings.0.weight"} | {
        f"mlp.{layer}.{kind}" for layer in ("body.0", "head") for kind in ("weight", "bias")
    }
