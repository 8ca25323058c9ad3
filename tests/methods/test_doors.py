"""Who gets which method where nobody chose one, and that each door says what it took."""

import logging

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

import stepe
from stepe.methods import METHODS
from stepe.methods.doors import DEFAULT_METHOD
from stepe.methods.step_e_plus.method import StepEPlus

X = torch.randn(24, 3, generator=torch.Generator().manual_seed(0))
Y = torch.arange(24) % 2


def network() -> nn.Module:
    return nn.Linear(3, 2)


DOORS = {
    "fit": lambda: stepe.fit(network(), X, Y, epochs=2, rho_max=0.1, device="cpu"),
    "StepE": lambda: stepe.StepE(torch.utils.data.TensorDataset(X, Y), epochs=2, rho_max=0.1),
    "StepEClassifier": lambda: stepe.StepEClassifier(epochs=2, rho_max=0.1, device="cpu").fit(X.numpy(), Y.numpy()),
    "StepEClassifier(estimator)": lambda: stepe.StepEClassifier(LogisticRegression(), rounds=1).fit(X.numpy(), Y),
}


def test_step_e_plus_where_the_network_and_its_loss_are_ours_and_step_e_elsewhere():
    ours = {door for door, method in DEFAULT_METHOD.items() if issubclass(METHODS[method], StepEPlus)}
    assert ours == {"clean", "StepEClassifier"}
    assert {method for door, method in DEFAULT_METHOD.items() if door not in ours} == {"step-e"}


@pytest.mark.parametrize("door", DOORS)
def test_a_door_says_once_what_it_took(door, caplog):
    with caplog.at_level(logging.INFO, logger="stepe"):
        DOORS[door]()
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("stepe", f"{door}: method {DEFAULT_METHOD[door]}, the default")
    ]


def test_a_method_that_was_chosen_is_no_default(caplog):
    with caplog.at_level(logging.INFO, logger="stepe"):
        stepe.fit(network(), X, Y, method="plain", epochs=1, device="cpu")
    assert caplog.messages == ["fit: method plain"]


def test_stepe_clean_says_it_to_whoever_listens(tmp_path, caplog):
    said: list[str] = []
    with caplog.at_level(logging.INFO, logger="stepe"):
        stepe.clean((X.numpy(), Y.numpy()), out=tmp_path / "run", epochs=2, holdout=0, device="cpu", say=said.append)
    assert said.count("clean: method step-e-plus, the default") == 1
    assert not caplog.records
