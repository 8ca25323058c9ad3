import math

import pytest
import torch
from torch import Tensor

from stepe import InputError
from stepe.methods.elr import SMALLEST


def reference(rows: list[list[float]], labels: list[int], mean: list[list[float]], strength: float, memory: float):
    """The paper's loss and running mean, a sample at a time."""
    losses = []
    for i, row in enumerate(rows):
        kept = [min(max(p, SMALLEST), 1 - SMALLEST) for p in row]
        mean[i] = [memory * m + (1 - memory) * p / sum(kept) for m, p in zip(mean[i], kept, strict=True)]
        agreement = sum(m * p for m, p in zip(mean[i], kept, strict=True))
        losses.append(-math.log(row[labels[i]]) + strength * math.log(1 - agreement))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("options", [{}, {"strength": 7.0, "memory": 0.9}])
def test_loss_and_running_mean_are_those_of_the_paper_step_after_step(options, started, batch_of, logits, labels):
    method, ledger = started("elr", labels, **options)
    settings = {"strength": method.strength, "memory": method.memory}
    mean = [[0.0] * 3 for _ in range(4)]
    for step in range(3):
        outputs = logits[:4] * (1 + step)
        found = method.loss(lambda x: x, batch_of(outputs, labels[:4]))
        rows = outputs.detach().double().softmax(1).tolist()
        assert found.item() == pytest.approx(reference(rows, labels.tolist(), mean, **settings), rel=1e-4)
        torch.testing.assert_close(ledger["early"][:4], torch.tensor(mean), rtol=1e-5, atol=1e-6)
    assert not ledger["early"][4].any()  # it was in no batch


def test_gradients_stay_finite_where_a_model_is_as_sure_as_a_float_can_be(started, batch_of, logits, labels):
    method, _ = started("elr", labels)
    for _ in range(20):
        loss = method.loss(lambda x: x, batch_of(logits, labels))
    loss.backward()
    assert torch.isfinite(logits.grad).all()


def test_a_label_that_contradicts_what_was_learned_early_pulls_less(started, batch_of):
    labels = torch.tensor([1])

    def pull(strength: float) -> Tensor:
        method, ledger = started("elr", labels, strength=strength)
        ledger["early"] = torch.tensor([[0.98, 0.01, 0.01]])
        outputs = torch.tensor([[3.0, 1.0, 0.0]], requires_grad=True)
        method.loss(lambda x: x, batch_of(outputs, labels)).backward()
        return outputs.grad[0]

    assert pull(0.0)[0] > 0  # cross-entropy unlearns what was learned early
    assert pull(3.0)[0] < 0  # the regulariser holds on to it


@pytest.mark.parametrize(
    ("options", "message"), [({"strength": -1.0}, "strength is -1.0"), ({"memory": 1.0}, "memory is 1.0")]
)
def test_options_that_make_no_sense_are_refused(options, message, started, labels):
    with pytest.raises(InputError, match=message):
        started("elr", labels, **options)


def test_it_is_less_fooled_than_plain_training(fooled):
    assert fooled("elr").summary.test_accuracy > fooled("plain").summary.test_accuracy + 0.15
    assert fooled("elr").summary.noise.auroc > fooled("plain").summary.noise.auroc + 0.15


def test_without_its_regulariser_it_is_plain_training(fooled):
    with_none, plain = fooled("elr", strength=0.0), fooled("plain")
    for one, other in zip(with_none.history, plain.history, strict=True):
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-4)
