"""When the warm-up ends, where that is to be found out."""

import torch

from stepe.loop.ledger import JudgedBy, Ledger, Observation
from stepe.loop.schedule import make_schedule
from stepe.methods.parts.dropping import Dropping


def dropping(*, finds_warmup: bool = True) -> Dropping:
    def schedule(rho_max: float, warmup: int):
        return make_schedule("linear", rho_max=rho_max, epochs=30, warmup=warmup)

    return Dropping(schedule, rho_max=0.3, warmup=10, finds_warmup=finds_warmup)


def ends(losses: list[float], judges: list[JudgedBy] | None = None, *, finds_warmup: bool = True) -> int:
    """The warm-up after probes of such losses, from epoch 1 on."""
    found, ledger = dropping(finds_warmup=finds_warmup), Ledger(4)
    for epoch, (loss, judge) in enumerate(zip(losses, judges or ["others"] * len(losses), strict=True), start=1):
        ledger.record_probe(Observation(torch.full((4,), loss)))
        found.end_warmup(epoch, ledger, judge)
    return found.warmup


def test_it_ends_when_the_losses_of_two_epochs_are_hardly_below_the_best():
    assert ends([2.0, 1.5, 1.2, 1.195, 1.19, 1.0]) == 5
    assert ends([1.0, 1.1, 1.2]) == 3
    assert ends([2.0, 1.5, 1.2, 1.195, 1.1, 1.0]) == 10
    assert ends([1.0 / epoch for epoch in range(1, 15)]) == 10


def test_it_does_not_end_by_itself_where_its_length_was_given():
    assert ends([1.0] * 9, finds_warmup=False) == 10


def test_losses_of_another_judge_are_others():
    assert ends([1.0, 1.0, 0.5, 0.5, 0.5], ["others", "others", "cleared", "cleared", "cleared"]) == 5


def test_the_ramp_begins_where_the_warm_up_ended():
    found, ledger = dropping(), Ledger(4)
    ledger.record_probe(Observation(torch.ones(4)))
    for epoch in (1, 2, 3):
        found.end_warmup(epoch, ledger, "others")
    assert [found.share(epoch) > 0 for epoch in (3, 4)] == [False, True]


def test_a_saved_state_goes_on_as_if_it_had_not_been_interrupted():
    one, ledger = dropping(), Ledger(4)
    ledger.record_probe(Observation(torch.ones(4)))
    one.end_warmup(1, ledger, "others")
    one.end_warmup(2, ledger, "others")
    other = dropping()
    other.load_state_dict(one.state_dict())
    for each in (one, other):
        each.end_warmup(3, ledger, "others")
    assert one.warmup == other.warmup == 3
    assert one.state_dict() == other.state_dict()
