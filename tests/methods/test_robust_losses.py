"""The losses that label smoothing, GCE and SCE train on, one sample at a time."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stepe
from stepe import InputError


def smoothed(probability: list[float], label: int, smoothing: float = 0.1) -> float:
    target = [smoothing / 3 + (1 - smoothing) * (label == each) for each in range(3)]
    return -sum(share * math.log(p) for share, p in zip(target, probability, strict=True))


def generalised(probability: list[float], label: int, q: float = 0.7) -> float:
    return (1 - probability[label] ** q) / q


def symmetric(probability: list[float], label: int, alpha=0.1, beta=1.0, log_zero=-4.0) -> float:
    reverse = -sum(p * (0.0 if each == label else log_zero) for each, p in enumerate(probability))
    return -alpha * math.log(probability[label]) + beta * reverse


FORMULAS = {"label-smoothing": smoothed, "gce": generalised, "sce": symmetric}


@pytest.mark.parametrize(
    ("method", "options"),
    [
        *((name, {}) for name in FORMULAS),
        ("label-smoothing", {"smoothing": 0.4}),
        ("gce", {"q": 0.3}),
        ("gce", {"q": 1.0}),
        ("sce", {"alpha": 6.0, "beta": 0.1, "log_zero": -6.0}),
    ],
)
@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 0.0, 2.0, 0.5])])
def test_the_loss_is_the_formula_of_its_paper(method, options, weight, started, batch_of, logits, labels):
    made, _ = started(method, labels[:4], **options)
    loss = made.loss(lambda x: x, batch_of(logits[:4], labels[:4], weight))
    rows = logits[:4].detach().double().softmax(1).tolist()
    each = [FORMULAS[method](row, label, **options) for row, label in zip(rows, labels.tolist(), strict=False)]
    counts = [1.0] * 4 if weight is None else weight.tolist()
    expected = sum(count * value for count, value in zip(counts, each, strict=True)) / sum(counts)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("method", FORMULAS)
def test_logits_beyond_a_floats_probabilities_give_finite_gradients(method, started, batch_of, logits, labels):
    made, _ = started(method, labels)
    made.loss(lambda x: x, batch_of(logits, labels)).backward()
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize(
    ("method", "options"), [("label-smoothing", {"smoothing": 0.0}), ("sce", {"alpha": 1.0, "beta": 0.0})]
)
def test_at_the_end_of_its_range_it_is_cross_entropy(method, options, started, batch_of, logits, labels):
    made, _ = started(method, labels, **options)
    loss = made.loss(lambda x: x, batch_of(logits, labels))
    torch.testing.assert_close(loss, F.cross_entropy(logits, labels))


def test_gce_tends_to_cross_entropy_and_pulls_less_at_labels_that_are_unlikely(started, batch_of):
    logits, labels = torch.tensor([[6.0, 0.0, 0.0]]), torch.tensor([1])

    def pull(q: float) -> float:
        outputs = logits.clone().requires_grad_()
        started("gce", labels, q=q)[0].loss(lambda x: x, batch_of(outputs, labels)).backward()
        return float(outputs.grad.abs().sum())

    outputs = logits.clone().requires_grad_()
    F.cross_entropy(outputs, labels).backward()
    assert pull(1e-5) == pytest.approx(float(outputs.grad.abs().sum()), rel=1e-3)
    assert pull(0.7) < 0.05 * pull(1e-5)


def test_a_smoothed_label_asks_for_no_more_than_its_share(started, batch_of):
    target = torch.tensor([[1 - 0.1 + 0.1 / 3, 0.1 / 3, 0.1 / 3]])
    logits, labels = target.log().requires_grad_(), torch.tensor([0])
    started("label-smoothing", labels)[0].loss(lambda x: x, batch_of(logits, labels)).backward()
    torch.testing.assert_close(logits.grad, torch.zeros(1, 3), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("method", "gain"), [("gce", 0.1), ("sce", 0.05)])
def test_it_is_less_fooled_than_plain_training(method, gain, fooled):
    assert fooled(method).summary.test_accuracy > fooled("plain").summary.test_accuracy + gain
    assert fooled(method).summary.noise.auroc > fooled("plain").summary.noise.auroc + gain


def test_label_smoothing_is_less_sure_of_what_it_learned_by_heart(fooled):
    def held_out_loss(method: str) -> float:
        return float(fooled(method, epochs=90).held_out.loss.mean())

    assert held_out_loss("label-smoothing") < 0.9 * held_out_loss("plain")


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("label-smoothing", {"smoothing": 1.0}, "smoothing is 1.0"),
        ("gce", {"q": 0.0}, r"q is 0\.0; .*in \(0, 1\]"),
        ("sce", {"alpha": -1.0}, "alpha is -1.0"),
        ("sce", {"alpha": 0.0, "beta": 0.0}, "alpha and beta are 0"),
        ("sce", {"log_zero": 1.0}, "log_zero is 1.0"),
    ],
)
def test_options_that_make_no_sense_are_refused(method, options, message, started, labels):
    with pytest.raises(InputError, match=message):
        started(method, labels, **options)


def test_outputs_that_are_no_logits_of_the_classes_are_refused(started, batch_of, labels):
    made, _ = started("gce", labels)
    with pytest.raises(InputError, match=r"shape \(5, 2\) and the labels 3 classes; this method needs one logit per"):
        made.loss(lambda x: x, batch_of(torch.zeros(5, 2), labels))


@pytest.mark.parametrize("method", ["label-smoothing", "gce", "sce", "elr", "margins"])
@pytest.mark.parametrize(
    ("values", "kind"), [(torch.rand(8), "numbers"), (torch.eye(2).repeat(4, 1), "marks")], ids=["numbers", "marks"]
)
def test_what_compares_classes_is_refused_where_labels_are_none(method, values: Tensor, kind):
    with pytest.raises(InputError, match=f"{method}' compares the probabilities of classes.* are {kind}: .*step-e"):
        stepe.fit(
            torch.nn.Linear(3, 2),
            torch.rand(8, 3),
            values,
            method=method,
            criterion=lambda outputs, targets: outputs.mean(1),
            device="cpu",
        )
