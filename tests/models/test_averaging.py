"""Averaged weights."""

import copy

import pytest
import torch
from torch import nn

import stepe
from stepe.loop.ledger import Ledger
from stepe.loop.task import Task
from stepe.methods import Plain, StepEPlus
from stepe.methods.step_e import StepwiseElimination
from stepe.models.averaging import Average


class Averaged(StepwiseElimination):
    """Step-E whose weights are averaged over two epochs."""

    def start(self, task: Task, ledger: Ledger) -> None:
        super().start(task, ledger)
        self.averaging = 2.0


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def data(n: int = 96) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(n, 4, generator=draw)
    return x, x[:, :3].argmax(1)


def test_an_average_is_the_running_mean_of_all_it_was_shown():
    model = network()
    average = Average(model, steps=4)
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    for _ in range(5):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += torch.randn_like(parameter)
            model[1].running_mean += 1
            model[1].num_batches_tracked += 1
        average.update()
        for name, value in model.state_dict().items():
            expected[name] = 0.75 * expected[name] + 0.25 * value if value.is_floating_point() else value.clone()
    for name, value in average.model.state_dict().items():
        torch.testing.assert_close(value, expected[name])


def test_an_average_over_less_than_a_step_is_the_model():
    model = network()
    average = Average(model, steps=0.2)
    with torch.no_grad():
        model[0].weight += 1
    average.update()
    torch.testing.assert_close(average.model[0].weight, model[0].weight.detach())


def test_handing_over_gives_the_model_the_mean():
    model = network()
    average = Average(model, steps=10)
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        model[0].weight += 1
    average.hand_over()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("engine", ["eager", "resident"])
def test_a_run_hands_back_the_model_that_was_tested(engine):
    x, y = data()
    model = network()
    result = stepe.fit(
        model, x, y, method=Averaged(rho_max=0.2), test=(x, y), epochs=6, batch_size=16, device="cpu", engine=engine
    )
    assert result.model is model
    with torch.no_grad():
        accuracy = float((model.eval()(x).argmax(1) == y).double().mean())
    assert accuracy == pytest.approx(result.summary.test_accuracy)
    last = result.training.engine.average
    assert last is not None
    assert all(torch.equal(value, last.model.state_dict()[name]) for name, value in model.state_dict().items())


def test_averaging_changes_what_is_probed_and_not_what_is_trained():
    x, y = data()
    runs = {}
    for method in (Averaged(rho_max=0.0), StepwiseElimination(rho_max=0.0)):
        runs[type(method)] = stepe.fit(network(), x, y, method=method, epochs=6, batch_size=16, device="cpu")
    averaged, plain = runs[Averaged], runs[StepwiseElimination]
    assert [row["train_loss"] for row in averaged.history] == [row["train_loss"] for row in plain.history]
    assert not torch.equal(averaged.ledger["loss"], plain.ledger["loss"])


def test_what_the_weights_were_in_the_first_epoch_is_forgotten():
    x, y = data()
    averaged = Plain()
    averaged.averaging = 5.0
    results = [stepe.fit(network(), x, y, method=m, epochs=1, batch_size=16, device="cpu") for m in (averaged, Plain())]
    first, second = (result.model.state_dict() for result in results)
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_complex_weights_are_averaged_too():
    model = nn.Module()
    model.weight = nn.Parameter(torch.tensor([1.0 + 1.0j]))
    average = Average(model, steps=4)
    with torch.no_grad():
        model.weight += 4
    average.update()
    torch.testing.assert_close(average.model.weight.detach(), torch.tensor([2.0 + 1.0j]))


def test_a_scripted_model_is_averaged():
    x, y = data()
    result = stepe.fit(torch.jit.script(network()), x, y, method=Averaged(rho_max=0.2), epochs=2, device="cpu")
    assert result.history[-1]["dropped"] > 0


def test_a_model_that_cannot_be_copied_is_refused_with_a_way_out():
    def model() -> nn.Module:
        return nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 8)), nn.Linear(8, 3))

    x, y = data()
    options = {"method": "step-e-plus", "rho_max": 0.2, "epochs": 2, "device": "cpu"}
    with pytest.raises(stepe.InputError, match="average=0 goes without"):
        stepe.fit(model(), x, y, **options)
    stepe.fit(model(), x, y, method=StepEPlus(average=0, rho_max=0.2), epochs=2, device="cpu")
    with pytest.raises(stepe.InputError, match="probe='in-sample' needs no copies"):
        stepe.fit(model(), x, y, probe="cross:2", **options)
