import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepe import InputError
from stepe.models.representation import Representation


class Shuffled(nn.Module):
    """The layer that runs last is listed first."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, 3)
        self.body = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).relu())


def seen_by(model: nn.Module, x: Tensor) -> Tensor:
    with Representation(model) as representation:
        model(x)
        return representation.take(len(x))


def test_it_is_what_goes_into_the_layer_that_runs_last_as_directions():
    model, x = Shuffled(), torch.randn(6, 4)
    thought = model.body(x).relu()
    torch.testing.assert_close(seen_by(model, x).float(), F.normalize(thought, dim=1), rtol=1e-3, atol=1e-3)


def test_inputs_of_a_single_layer_are_what_it_thinks():
    x = torch.tensor([[3.0, 4.0]])
    torch.testing.assert_close(seen_by(nn.Linear(2, 2), x).float(), x / 5, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e12])
def test_half_precision_holds_what_is_too_large_for_it(scale):
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    found = seen_by(nn.Linear(4, 2), x * scale)
    assert found.dtype == torch.float16
    torch.testing.assert_close(found.float().norm(dim=1), torch.ones(6), rtol=1e-3, atol=1e-3)


def test_the_model_is_left_as_it_was():
    model = Shuffled()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), Representation(model):
        model(torch.randn(2, 9))
    assert not any(layer._forward_pre_hooks for layer in model.modules())
    assert not seen_by(model, torch.randn(2, 4)).requires_grad


def test_a_model_without_a_linear_layer_is_refused_before_it_runs():
    with pytest.raises(InputError, match=r"Sequential .* has none: end it in an nn.Linear"):
        Representation(nn.Sequential(nn.Conv2d(3, 4, 1), nn.Flatten()))


def test_linear_layers_that_are_never_called_are_told():
    class Aside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.linear.weight)

    with pytest.raises(InputError, match="no linear layer of the model was called"):
        seen_by(Aside(), torch.randn(2, 4))


def test_inputs_may_have_a_name():
    x, model = torch.tensor([[3.0, 4.0]]), nn.Linear(2, 2)
    with Representation(model) as representation:
        model(input=x)
        torch.testing.assert_close(representation.take(1).float(), x / 5, rtol=1e-3, atol=1e-3)


def test_every_pass_has_to_show_its_own():
    model = nn.Linear(4, 3)
    with Representation(model) as representation:
        model(torch.randn(2, 4))
        representation.take(2)
        with pytest.raises(InputError, match="no linear layer of the model was called"):
            representation.take(2)


@pytest.mark.parametrize("shape", [(2, 7, 4), (3, 4), (4,)])
def test_anything_but_a_row_per_sample_is_refused(shape):
    model = nn.Linear(4, 3)
    with Representation(model) as representation:
        model(torch.randn(shape))
        with pytest.raises(InputError, match="for 2 samples; to compare samples, one row for each is needed"):
            representation.take(2)
