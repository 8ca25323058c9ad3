import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stepe
from stepe import InputError
from stepe.methods.parts.mixing import blend


def reference(x: Tensor, target: Tensor, share: Tensor, weight: Tensor) -> float:
    """The paper's formula, a pair at a time: the logits are the blended inputs themselves."""
    total = 0.0
    for i in range(len(x)):
        logs = (share[i] * x[i] + (1 - share[i]) * x[i - 1]).log_softmax(0)
        own, other = share[i] * weight[i], (1 - share[i]) * weight[i - 1]
        total -= float(own * logs[target[i]] + other * logs[target[i - 1]])
    return total / float(weight.sum())


@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 0.0, 2.0, 0.5, 1.0])])
def test_inputs_labels_and_weights_are_blended_pair_by_pair(weight, started, batch_of, logits, labels):
    method, _ = started("mixup", labels)
    method.prepare(0)
    share = method.state_dict()["share"]
    assert 0 <= share.min() < share.max() <= 1
    found = method.loss(lambda x: x, batch_of(logits.detach(), labels, weight))
    expected = reference(logits.detach(), labels, share, torch.ones(5) if weight is None else weight)
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_cross_entropy_is_that_of_the_blended_label(started, batch_of, logits, labels):
    method, _ = started("mixup", labels)
    method.prepare(0)
    x, one_hot, share = logits.detach(), F.one_hot(labels, 3).float(), method.state_dict()["share"]
    found = method.loss(lambda x: x, batch_of(x, labels))
    torch.testing.assert_close(found, F.cross_entropy(blend(x, share), blend(one_hot, share)))


def test_shares_follow_the_beta_distribution_and_are_others_in_each_epoch_and_run(started):
    labels = torch.zeros(20_000, dtype=torch.int64)

    def shares(alpha: float, epoch: int = 0) -> Tensor:
        method, _ = started("mixup", labels, alpha=alpha)
        method.prepare(epoch)
        return method.state_dict()["share"]

    for alpha in (0.2, 1.0, 8.0):
        np.testing.assert_allclose(float(shares(alpha).mean()), 0.5, atol=0.01)
        np.testing.assert_allclose(float(shares(alpha).var()), 1 / (4 * (2 * alpha + 1)), rtol=0.03)
    assert torch.equal(shares(1.0), shares(1.0))
    assert not torch.equal(shares(1.0), shares(1.0, epoch=1))


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan")])
def test_alpha_is_positive(alpha, started, labels):
    with pytest.raises(InputError, match=r"alpha is .*; it must be a number, above 0"):
        started("mixup", labels, alpha=alpha)


def test_it_is_less_fooled_than_plain_training(fooled):
    assert fooled("mixup").summary.test_accuracy > fooled("plain").summary.test_accuracy + 0.03
    assert fooled("mixup").summary.noise.auroc > fooled("plain").summary.noise.auroc + 0.03


def test_numbers_are_blended_too():
    x = torch.rand(64, 3, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))
    options = {"epochs": 20, "batch_size": 8, "learning_rate": 0.1, "device": "cpu"}
    criterion = nn.MSELoss(reduction="none")
    result = stepe.fit(model, x, x.sum(1), method="mixup", criterion=criterion, **options)
    assert float(result.ledger["loss"].mean()) < 0.01
