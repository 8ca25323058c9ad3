import pytest
import torch
from torch import Tensor

from stepe import InputError
from stepe.loop.ledger import Ledger
from stepe.methods import Method


def reference(outputs: Tensor, labels: Tensor) -> list[float]:
    """The margin of a sample: its label's logit, less the largest of the others."""
    rows = zip(outputs.tolist(), labels.tolist(), strict=True)
    return [row[label] - max(value for each, value in enumerate(row) if each != label) for row, label in rows]


LABELS = torch.tensor([0, 2, 1, 0, 1, 2])


@pytest.fixture
def trained(started, batch_of):
    """A method after ``epochs`` of a run of four, and the margins of each; three samples have negative ones."""

    def train(epochs: int, **options) -> tuple[Method, Ledger, list[list[float]]]:
        method, ledger = started("margins", LABELS, **options)
        draw, seen = torch.Generator().manual_seed(0), []
        for epoch in range(epochs):
            method.prepare(epoch)
            outputs = torch.randn(6, 3, generator=draw)
            outputs[torch.arange(6), LABELS] += torch.tensor([8.0, 8.0, 8.0, -8.0, -7.0, -6.0])
            method.loss(lambda x: x, batch_of(outputs, LABELS))
            seen.append(reference(outputs, LABELS))
        return method, ledger, seen

    return train


def mean_margin(ledger: Ledger) -> Tensor:
    total, times = ledger["margins"].unbind(1)
    return total / times


def test_margins_are_averaged_over_the_first_half(trained):
    for epochs in (1, 2, 4):
        _, ledger, seen = trained(epochs)
        measured = torch.tensor(seen[:2])
        torch.testing.assert_close(mean_margin(ledger), measured.mean(0))
        assert ledger["margins"][:, 1].eq(len(measured)).all()


def test_whoever_loses_to_another_class_on_average_is_left_out_of_the_second_half(trained):
    method, ledger, _ = trained(4)
    assert method.plan(1, ledger).kept.all()
    for epoch in (2, 3):
        plan = method.plan(epoch, ledger)
        assert plan.kept.tolist() == [True] * 3 + [False] * 3
        assert plan.drop_fraction == 0.5


def test_a_share_leaves_out_the_lowest_means(trained):
    method, ledger, _ = trained(2, rho_max=1 / 3)
    lowest = torch.argsort(mean_margin(ledger))[:2].tolist()
    assert torch.nonzero(~method.plan(2, ledger).kept).flatten().tolist() == sorted(lowest)


def test_never_more_than_half_goes_for_a_negative_margin(trained):
    method, ledger, _ = trained(2)
    ledger["margins"] = torch.stack([-torch.arange(1.0, 7.0), torch.ones(6)], 1)
    assert method.plan(2, ledger).kept.tolist() == [True] * 3 + [False] * 3


def test_measured_to_the_end_nobody_is_left_out(trained):
    method, ledger, seen = trained(4, until=1.0)
    assert method.plan(3, ledger).kept.all()
    torch.testing.assert_close(mean_margin(ledger), torch.tensor(seen).mean(0))


@pytest.mark.parametrize("until", [0.0, 1.5])
def test_the_measured_share_is_one(until, started):
    with pytest.raises(InputError, match=f"until is {until}"):
        started("margins", LABELS, until=until)


def test_mean_margins_tell_wrong_labels_better_than_the_loss_in_the_end(fooled):
    found, plain = fooled("margins"), fooled("plain")
    assert found.summary.noise.auroc > plain.summary.noise.auroc + 0.1
    assert found.summary.test_accuracy > plain.summary.test_accuracy + 0.1
    torch.testing.assert_close(found.ledger["score"], -mean_margin(found.ledger))


def test_it_points_out_whose_margin_was_negative_most_suspicious_first(fooled):
    result = fooled("margins", rho_max=0.4)
    issues, margin = result.issues, mean_margin(result.ledger)
    assert result.summary.noise.flagged.precision > 0.9
    assert len(issues) > 40
    assert (margin[issues["row"].tolist()] < 0).all()
    assert issues["margin"].is_monotonic_increasing
