import io
import math

import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, OneCycleLR, SequentialLR, StepLR

from stepe.engine.learning_rate import ProgressRate, TorchRate, constant, cosine


def make_optimizer(*rates: float) -> SGD:
    return SGD([{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in rates or (0.4,)])


def rate_of(optimizer: SGD) -> float:
    return optimizer.param_groups[0]["lr"]


def epoch_lengths(full: int, epochs: int) -> list[int]:
    """Epochs that shrink to half, as a kept set does."""
    return [max(1, round(full * (1 - 0.5 * epoch / (epochs - 1)))) for epoch in range(epochs)]


def drive(rate: ProgressRate | TorchRate, optimizer: SGD, lengths: list[int]) -> list[list[float]]:
    """The rates that the steps of every epoch trained with."""
    used: list[list[float]] = []
    for epoch, steps in enumerate(lengths):
        used.append([])
        for step in range(steps):
            rate.before_step((epoch + step / steps) / len(lengths))
            optimizer.step()
            used[-1].append(rate_of(optimizer))
            rate.after_step((epoch + (step + 1) / steps) / len(lengths))
    return used


def test_cosine_falls_from_one_to_zero():
    assert cosine(0.0) == 1.0
    assert cosine(0.5) == pytest.approx(0.5)
    assert cosine(1.0) == 0.0
    assert all(cosine(p / 50) > cosine((p + 1) / 50) for p in range(50))
    assert constant(0.7) == 1.0


def test_a_step_trains_at_the_rate_of_its_progress():
    optimizer = make_optimizer(0.4, 0.01)
    rate = ProgressRate(optimizer, cosine)
    for progress in (0.0, 0.3, 0.9, 0.1):  # a function of progress, not of earlier steps
        rate.before_step(progress)
        assert [group["lr"] for group in optimizer.param_groups] == [0.4 * cosine(progress), 0.01 * cosine(progress)]


def test_shorter_epochs_end_at_the_same_rate():
    ends = []
    for lengths in ([8] * 5, [8, 6, 4, 2, 1]):
        optimizer = make_optimizer()
        used = drive(ProgressRate(optimizer, cosine), optimizer, lengths)
        ends.append([rates[0] for rates in used])
    assert ends[0] == ends[1]


@pytest.mark.parametrize("full", [1, 7, 10])
def test_a_step_scheduler_built_for_the_full_length_anneals_to_its_end(full):
    epochs, optimizer = 12, make_optimizer()
    scheduler = OneCycleLR(optimizer, max_lr=0.4, total_steps=epochs * full)
    drive(TorchRate(scheduler, epochs * full), optimizer, epoch_lengths(full, epochs))
    assert rate_of(optimizer) == pytest.approx(0.4 / 25 / 1e4)
    assert scheduler.last_epoch == epochs * full - 1  # one more would be an error of torch's


def test_a_step_scheduler_steps_once_a_step_while_epochs_are_full():
    optimizer, reference = make_optimizer(), make_optimizer()
    rate = TorchRate(CosineAnnealingLR(optimizer, T_max=30), 30)
    scheduler, expected = CosineAnnealingLR(reference, T_max=30), []
    for _ in range(30):
        reference.step()
        expected.append(rate_of(reference))
        scheduler.step()
    used = drive(rate, optimizer, [10, 10, 10])
    assert [rate for epoch in used for rate in epoch] == expected


def test_an_epoch_scheduler_steps_once_an_epoch_whatever_the_length():
    optimizer = make_optimizer()
    rate = TorchRate(StepLR(optimizer, step_size=2, gamma=0.1), 6)
    used = drive(rate, optimizer, [10, 9, 7, 3, 1, 1])
    expected = [0.4, 0.4, 0.04, 0.04, 0.004, 0.004]
    for rates, value in zip(used, expected, strict=True):
        assert rates == pytest.approx([value] * len(rates))


@pytest.mark.parametrize(
    "make",
    [
        lambda optimizer: OneCycleLR(optimizer, max_lr=0.4, total_steps=40),
        lambda optimizer: CosineAnnealingLR(optimizer, T_max=40),
        lambda optimizer: LambdaLR(optimizer, lambda step: 1 / (1 + step)),
        lambda optimizer: SequentialLR(
            optimizer,
            [LambdaLR(optimizer, lambda step: (step + 1) / 5), CosineAnnealingLR(optimizer, T_max=35)],
            milestones=[5],
        ),
        None,
    ],
    ids=["one-cycle", "cosine", "lambda", "sequential", "progress"],
)
def test_a_restored_rate_goes_on_where_it_was(make):
    def build(first: float = 0.4) -> tuple[SGD, ProgressRate | TorchRate]:
        optimizer = make_optimizer(first)
        return optimizer, (ProgressRate(optimizer, cosine) if make is None else TorchRate(make(optimizer), 40))

    def steps(rate: ProgressRate | TorchRate, optimizer: SGD, epochs: range) -> list[float]:
        used = []
        for epoch in epochs:
            for step in range(7):
                rate.before_step((epoch + step / 7) / 4)
                optimizer.step()
                used.append(rate_of(optimizer))
                rate.after_step((epoch + (step + 1) / 7) / 4)
        return used

    optimizer, rate = build()
    whole = steps(rate, optimizer, range(4))
    optimizer, rate = build()
    begun = steps(rate, optimizer, range(2))
    saved = io.BytesIO()
    torch.save((optimizer.state_dict(), rate.state_dict()), saved)
    saved.seek(0)
    optimizer, rate = build(first=0.7)  # whatever it starts from, the saved state counts
    optimizer_state, rate_state = torch.load(saved, weights_only=True)
    optimizer.load_state_dict(optimizer_state)
    rate.load_state_dict(rate_state)
    assert begun + steps(rate, optimizer, range(2, 4)) == whole
    assert len(set(whole)) > 10
    assert all(math.isfinite(value) for value in whole)
