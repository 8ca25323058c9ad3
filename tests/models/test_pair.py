"""Two networks as one module, and how the second comes to its weights."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from stepe import InputError
from stepe.loop.randomness import Stream
from stepe.models.mlp import MLP
from stepe.models.pair import Pair, redrawn
from stepe.models.resnet import resnet18
from stepe.models.sparse import SparseMLP

STREAM = Stream.named(0, "second network")


def test_in_training_both_speak_and_otherwise_the_first_alone(make_model):
    one, other, x = make_model(1).eval(), make_model(2).eval(), torch.randn(5, 6)
    pair = Pair(one, other)
    assert torch.equal(pair(x), torch.cat([one(x), other(x)]))
    pair.eval()
    assert torch.equal(pair(x), one(x))


def test_networks_that_share_weights_are_no_pair(make_model):
    model = make_model()
    with pytest.raises(InputError, match="share weights; make the second one anew"):
        Pair(model, nn.Sequential(model[0], nn.ReLU()))


def test_outputs_that_are_no_tensor_are_refused():
    class Named(nn.Linear):
        def forward(self, x: Tensor) -> SimpleNamespace:
            return SimpleNamespace(logits=super().forward(x))

    with pytest.raises(InputError, match=r"returned a SimpleNamespace, not a tensor of logits; wrap it in a module"):
        Pair(Named(6, 3), Named(6, 3))(torch.zeros(2, 6))


def test_a_second_network_has_weights_of_its_own_and_the_first_keeps_its(make_model, bits):
    model = make_model()
    before = bits(model)
    second = redrawn(model, STREAM)
    assert bits(model) == before
    assert not torch.equal(second[0].weight, model[0].weight)
    assert second[0].weight.shape == model[0].weight.shape


def test_it_depends_on_the_stream_alone_and_moves_no_generator(make_model, bits):
    torch.manual_seed(1)
    generator = torch.get_rng_state()
    one = bits(redrawn(make_model(seed=3), STREAM))
    assert torch.equal(torch.get_rng_state(), generator)
    torch.manual_seed(2)
    assert bits(redrawn(make_model(seed=4), STREAM)) == one
    assert bits(redrawn(make_model(seed=3), Stream.named(1, "second network"))) != one


@pytest.mark.parametrize("make", [lambda: MLP(40, 3), lambda: SparseMLP(400, 3), lambda: resnet18(3)])
def test_our_networks_are_drawn_as_they_were_made(make):
    model = make()
    for (name, old), new in zip(model.named_parameters(), redrawn(model, STREAM).parameters(), strict=True):
        constant = bool((old == old.flatten()[0]).all())  # BatchNorm begins at 0 and 1
        assert torch.equal(old, new) == constant, name
        if old.numel() > 1000:
            torch.testing.assert_close(new.std(), old.std(), rtol=0.1, atol=0)


def test_a_module_that_draws_its_parts_has_the_last_word():
    class Ones(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.free = nn.Linear(2, 2), nn.Parameter(torch.randn(2))

        def reset_parameters(self) -> None:
            self.inner.weight.fill_(1.0)

    model = Ones()
    second = redrawn(model, STREAM)
    assert second.inner.weight.eq(1).all()
    assert not torch.equal(second.inner.bias, model.inner.bias)
    assert torch.equal(second.free, model.free)  # nobody knows how it was drawn


def test_a_network_that_nothing_draws_anew_is_refused():
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 3))

    with pytest.raises(InputError, match=r"second network cannot be made of this Fixed: .*Pair\(first, second\)"):
        redrawn(Fixed(), STREAM)


def test_a_network_that_cannot_be_copied_is_refused_with_a_way_out():
    with pytest.raises(InputError, match=r"cannot be copied .*Pair\(first, second\)"):
        redrawn(nn.utils.weight_norm(nn.Linear(6, 3)), STREAM)
