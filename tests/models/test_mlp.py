"""The multilayer perceptron."""

import torch
from torch import nn

from stepe.models.mlp import MLP


def test_one_logit_per_class_whatever_the_shape_of_the_inputs():
    model = MLP(64, 10)
    assert model(torch.randn(5, 64)).shape == (5, 10)
    assert torch.equal(model(torch.ones(2, 8, 8)), model(torch.ones(2, 64)))


def test_the_hidden_layers_are_as_wide_as_asked_for():
    widths = [layer.out_features for layer in MLP(6, 3, hidden=(9, 8, 7)).modules() if isinstance(layer, nn.Linear)]
    assert widths == [9, 8, 7, 3]


def test_without_hidden_layers_it_is_linear():
    model = MLP(6, 3, hidden=())
    x, y = torch.randn(2, 6)
    torch.testing.assert_close(model((x + y)[None]) + model(torch.zeros(1, 6)), model(x[None]) + model(y[None]))


def test_dropout_is_on_in_training_and_off_in_judging():
    model, x = MLP(6, 3, dropout=0.5), torch.ones(1, 6)
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


def test_it_has_no_batch_statistics():
    model, x = MLP(6, 3).train(), torch.randn(4, 6)
    torch.testing.assert_close(model(x)[:1], model(x[:1]))
    assert not list(model.buffers())
