"""A judge that is no network serves a network's training; a loop is told what it misses."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F
from shrinking import BATCH, N, Recorded, clouds, network
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from stepe import InputError, StepE
from stepe.methods import StepEPlus

WRONG = torch.arange(N) % 4 == 0
OPTIONS: dict[str, Any] = {"epochs": 4, "warmup": 1, "rho_max": 0.25}


class Knowing:
    """Knows which labels are wrong, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]] = []
        labels = clouds()[1]
        self.classes = int(labels.max()) + 1
        self.said = (
            0.1 + 0.7 * F.one_hot(torch.where(WRONG, (labels + 1) % self.classes, labels), self.classes).double()
        )
        self.said /= self.said.sum(1, keepdim=True)

    def __call__(self, weights: npt.NDArray[np.float64], targets: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        self.asked.append((weights.copy(), targets.copy()))
        return self.said.numpy()


def trained(cleaner: StepE, model: nn.Module | None = None) -> StepE:
    loader = cleaner.loader(BATCH)
    for _ in cleaner.epochs(model):
        for _ in loader:
            pass
    return cleaner


def test_a_judge_says_who_is_dropped_and_learns_from_those_who_are_not():
    judge = Knowing()
    cleaner = trained(StepE(Recorded(*clouds()), judge=judge, **OPTIONS))
    assert not (cleaner.ledger["dropped"] & ~WRONG).any()
    assert cleaner.ledger["dropped"].any()
    assert set(cleaner.issues["row"]) <= set(torch.nonzero(WRONG).flatten().tolist())
    weights = [torch.from_numpy(asked) for asked, _ in judge.asked]
    assert [int((weight == 0).sum()) for weight in weights] == [0, *(row["dropped"] for row in cleaner.history[1:])]
    assert torch.equal(weights[-1] == 0, cleaner.ledger["dropped"])
    given = F.one_hot(cleaner.task.labels, judge.classes).double()
    assert all(torch.equal(torch.from_numpy(targets), given) for _, targets in judge.asked)


def test_the_model_is_not_probed_beside_a_judge():
    class Mute(nn.Module):
        def forward(self, x: Any) -> Any:
            raise AssertionError("somebody asked the model")

    trained(StepE(Recorded(*clouds()), judge=Knowing(), **OPTIONS), Mute())


def test_a_judge_learns_from_corrected_targets_too():
    judge = Knowing()
    cleaner = StepE(Recorded(*clouds()), judge=judge, method=StepEPlus(rho_max=0.25, warmup=1, mixup=0), epochs=4)
    loader, model = cleaner.loader(BATCH), network()
    for _ in cleaner.epochs():
        for x, _ in loader:
            cleaner.loss(model, x)
    targets = judge.asked[-1][1]
    dropped = cleaner.ledger["dropped"].numpy()
    assert np.allclose(targets.sum(1), 1, atol=1e-2)
    assert (targets.argmax(1) != cleaner.task.labels.numpy())[dropped].all()


def test_a_judge_is_asked_the_same_after_a_break():
    through, before, after = Knowing(), Knowing(), Knowing()
    trained(StepE(Recorded(*clouds()), judge=through, **OPTIONS))
    first = StepE(Recorded(*clouds()), judge=before, **OPTIONS)
    loader = first.loader(BATCH)
    for epoch in first.epochs():
        for _ in loader:
            pass
        if epoch == 2:
            state = first.state_dict()
            break
    second = StepE(Recorded(*clouds()), judge=after, **OPTIONS)
    second.load_state_dict(state)
    trained(second)
    asked = [*before.asked, *after.asked]
    assert len(asked) == len(through.asked)
    for (weights, targets), (same_weights, same_targets) in zip(asked, through.asked, strict=True):
        assert np.array_equal(weights, same_weights)
        assert np.array_equal(targets, same_targets)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda said: None, r"shape \(\); it must give \(97, 3\)"),
        (lambda said: said[:5], r"shape \(5, 3\); it must give \(97, 3\): a row per sample"),
        (lambda said: said.argmax(1), r"shape \(97,\); it must give"),
        (
            lambda said: np.where(np.arange(N)[:, None] == 7, np.nan, said),
            r"of sample 7 are NaN or infinite .* 0 others",
        ),
        (lambda said: said * 2, "of sample 0 are negative, or do not add up to 1 .*96 others"),
        (lambda said: said - 0.2 + 0.2 * np.eye(3)[0] * 3, "of sample .* are negative"),
    ],
    ids=["nothing", "some", "classes", "nan", "sums", "negative"],
)
def test_an_answer_that_is_no_row_of_probabilities_per_sample_is_refused(answer, told):
    judge = Knowing()
    cleaner = StepE(Recorded(*clouds()), judge=lambda *asked: answer(judge(*asked)), **OPTIONS)
    with pytest.raises(InputError, match=told) as error:
        trained(cleaner)
    assert "\n" not in str(error.value)


def test_an_answer_may_be_a_tensor():
    judge = Knowing()
    trained(StepE(Recorded(*clouds()), judge=lambda *asked: judge.said.requires_grad_(), **OPTIONS))


def test_a_judge_needs_labels_that_are_classes():
    with pytest.raises(InputError, match="these labels are numbers: leave judge= out"):
        StepE(4, labels=[0.5, 1.0, 2.0, 3.0], judge=Knowing(), **OPTIONS)
    with pytest.raises(InputError, match="these labels are unknown: leave judge= out"):
        StepE(4, judge=Knowing(), **OPTIONS)


# ---------------------------------------------------------------------------------------------------------------
# What a loop is told


@pytest.mark.parametrize("probe", ["auto", "cross:5"])
def test_networks_that_judge_are_for_fit_and_a_loop_takes_a_judge(probe):
    with pytest.raises(InputError, match=r"StepE has no option 'probe'; .*stepe\.fit alone; .*judge="):
        StepE(Recorded(*clouds()), probe=probe, **OPTIONS)


def test_an_option_that_is_none_names_its_neighbours_and_whose_it_is():
    with pytest.raises(InputError, match="StepE has no option 'rho_mx'; did you mean rho_max"):
        StepE(Recorded(*clouds()), rho_mx=0.2, epochs=2)
    with pytest.raises(InputError, match=r"no option 'mixup'; .*StepEPlus\(mixup=\.\.\.\)"):
        StepE(Recorded(*clouds()), mixup=0, **OPTIONS)


def test_a_loop_that_keeps_its_old_loader_is_told():
    data = Recorded(*clouds())
    cleaner, old, model = StepE(data, **OPTIONS), DataLoader(data, batch_size=BATCH, shuffle=True), network()
    with pytest.warns(UserWarning, match=r"took no batch of cleaner\.loader\(.* trains on dropped samples too") as told:
        assert len([batch for _ in cleaner.epochs(model) for batch in old]) == OPTIONS["epochs"] * len(old)
    assert len(told) == 1


def test_a_batch_sampler_in_order_may_probe_and_another_is_told():
    data = Recorded(*clouds())
    in_order = DataLoader(data, batch_sampler=BatchSampler(SequentialSampler(data), 10, False))
    cleaner, model = StepE(data, **OPTIONS), network()
    loader = cleaner.loader(BATCH)
    for _ in cleaner.epochs(model, probe_loader=in_order):
        for _ in loader:
            pass
    other = DataLoader(data, batch_sampler=[list(range(N))])
    with pytest.raises(
        InputError, match=r"the probe loader has a batch sampler of its own \(list\), so that its losses"
    ):
        list(StepE(data, **OPTIONS | {"warmup": 0}).epochs(model, probe_loader=other))
