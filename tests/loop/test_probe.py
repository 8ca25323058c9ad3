import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepe import InputError
from stepe.loop.ledger import Observation
from stepe.loop.probe import evaluating, probe
from stepe.loop.randomness import Stream

CPU = torch.device("cpu")
STREAM = Stream.named(0, "probe")


def judge_with(model: nn.Module, reduction: str = "none"):
    def judge(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        x, y = batch
        logits = model(x)
        return F.cross_entropy(logits, y, reduction=reduction), logits, y

    return judge


def batches_of(x: Tensor, y: Tensor, size: int, order: Tensor | None = None):
    order = torch.arange(len(x)) if order is None else order
    for part in torch.split(order, size):
        yield part, (x[part], y[part])


def probed(
    model: nn.Module, x: Tensor, y: Tensor, size: int = 16, order: Tensor | None = None, **options
) -> Observation:
    batches = batches_of(x, y, size, order)
    return probe(model, batches, len(x), judge_with(model), stream=STREAM, device=CPU, **options)


@pytest.mark.parametrize("size", [1, 7, 16, 97, 1000])
def test_every_loss_stands_at_its_sample_whatever_the_batches(size, blobs, make_model):
    model, n = make_model(), len(blobs.x)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(size))
    seen = probed(model, blobs.x, blobs.given, size, order, probabilities=True)

    model.eval()  # the slow, obvious reference: one sample at a time, in plain arithmetic
    for index in range(n):
        logits = model(blobs.x[index : index + 1])[0].detach().double()
        probability = logits.exp() / logits.exp().sum()
        label = int(blobs.given[index])
        rest = [float(logit) for c, logit in enumerate(logits) if c != label]
        assert float(seen.loss[index]) == pytest.approx(-float(probability[label].log()), rel=1e-4)
        assert int(seen.prediction[index]) == int(probability.argmax())
        assert float(seen.confidence[index]) == pytest.approx(float(probability.max()), rel=1e-4)
        assert float(seen.given_probability[index]) == pytest.approx(float(probability[label]), rel=1e-4)
        assert float(seen.margin[index]) == pytest.approx(float(logits[label]) - max(rest), rel=1e-3, abs=1e-5)
        assert seen.probability[index].tolist() == pytest.approx(probability.tolist(), rel=1e-4)


def test_probabilities_come_only_when_asked_for(blobs, make_model):
    assert probed(make_model(), blobs.x, blobs.given).probability is None


def test_without_logits_there_are_losses_alone(blobs):
    def judge(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, None, None]:
        return batch[0].sum(1), None, None

    seen = probe(nn.Identity(), batches_of(blobs.x, blobs.given, 16), 97, judge, stream=STREAM, device=CPU)
    assert torch.equal(seen.loss, blobs.x.sum(1))
    assert seen.prediction is seen.confidence is seen.margin is seen.given_probability is None


def test_half_precision_losses_and_logits_are_kept_in_full(blobs):
    def judge(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        return batch[0].sum(1).bfloat16(), batch[0].bfloat16(), batch[1]

    seen = probe(nn.Identity(), batches_of(blobs.x, blobs.given, 16), 97, judge, stream=STREAM, device=CPU)
    assert seen.loss.dtype == seen.margin.dtype == seen.confidence.dtype == torch.float32


def test_the_model_is_judged_in_eval_mode_without_gradients(blobs, make_model):
    model, modes = make_model().train(), []
    model.register_forward_pre_hook(lambda *_: modes.append((model[1].training, torch.is_grad_enabled())))
    seen = probed(model, blobs.x, blobs.given)
    assert set(modes) == {(False, False)}
    assert not seen.loss.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())


def test_every_module_gets_its_own_mode_back(blobs, make_model):
    model = make_model().train()
    model[1].eval()  # a frozen BatchNorm inside a model in training
    modes = [module.training for module in model.modules()]
    probed(model, blobs.x, blobs.given)
    assert [module.training for module in model.modules()] == modes
    assert True in modes
    assert False in modes


def test_modes_and_generators_come_back_after_an_exception(blobs, make_model):
    model = make_model().train()
    model[1].eval()
    modes = [module.training for module in model.modules()]
    before = torch.get_rng_state()

    def judge(batch: object) -> tuple[Tensor, None, None]:
        torch.rand(1)
        raise KeyError("the user's own")

    with pytest.raises(KeyError, match="the user's own"):
        probe(model, batches_of(blobs.x, blobs.given, 16), 97, judge, stream=STREAM, device=CPU)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.is_grad_enabled()


def test_a_probe_leaves_weights_buffers_and_gradients_as_they_were(blobs, make_model, bits):
    model = make_model().train()
    F.cross_entropy(model(blobs.x), blobs.given).backward()
    before, gradients = bits(model), [p.grad.clone() for p in model.parameters()]
    probed(model, blobs.x, blobs.given)
    assert bits(model) == before
    assert all(torch.equal(p.grad, old) for p, old in zip(model.parameters(), gradients, strict=True))


def test_a_probe_disturbs_no_generator(blobs, make_model):
    class Noisy(nn.Module):
        """Random even in eval mode, from every generator there is."""

        def forward(self, x: Tensor) -> Tensor:
            return x[:, :3] + torch.rand(1) + float(np.random.random()) + random.random()  # noqa: NPY002

    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    one = probed(Noisy(), blobs.x, blobs.given)
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_equal(np.random.get_state(), before[1])  # noqa: NPY002
    assert random.getstate() == before[2]

    torch.manual_seed(6)
    assert torch.equal(probed(Noisy(), blobs.x, blobs.given).loss, one.loss)  # drawn under the probe's name


@pytest.mark.parametrize(
    ("reshape", "shape"),
    [
        (torch.mean, "()"),
        (torch.sum, "()"),
        (lambda losses: losses[:, None], "(16, 1)"),
        (lambda losses: losses[1:], "(15,)"),
    ],
)
def test_losses_that_are_not_one_per_sample_are_refused(reshape, shape, blobs):
    def judge(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, None, None]:
        return reshape(batch[0].sum(1)), None, None

    with pytest.raises(InputError) as error:
        probe(nn.Identity(), batches_of(blobs.x, blobs.given, 16), 97, judge, stream=STREAM, device=CPU)
    assert shape in str(error.value)
    assert 'reduction="none"' in str(error.value)


def test_a_reduced_loss_of_a_single_sample_is_refused_too(blobs, make_model):
    model = make_model()
    batches = batches_of(blobs.x[:2], blobs.given[:2], 1)
    with pytest.raises(InputError, match=r"shape \(\)"):
        probe(model, batches, 2, judge_with(model, "mean"), stream=STREAM, device=CPU)


@pytest.mark.parametrize(
    ("parts", "missed", "again"),
    [
        ([[0, 1], [2, 3]], 1, 0),
        ([[0, 1], [2, 3], [4, 0]], 0, 1),
        ([[0, 1, 1, 2], [3, 4]], 0, 1),  # twice within one batch
        ([[0, 1], [1, 2], [2, 3]], 1, 2),
        ([], 5, 0),
    ],
)
def test_batches_that_miss_or_repeat_samples_are_refused(parts, missed, again):
    def judge(batch: Tensor) -> tuple[Tensor, None, None]:
        return batch.float(), None, None

    batches = [(torch.tensor(part), torch.tensor(part)) for part in parts]
    with pytest.raises(InputError, match=f"missed {missed} of 5 samples and saw {again} more than once"):
        probe(nn.Identity(), batches, 5, judge, stream=STREAM, device=CPU)


def test_losses_that_are_not_finite_are_written_down_as_they_are():
    losses = torch.tensor([1.0, float("nan"), float("inf"), 2.0])
    seen = probe(
        nn.Identity(), [(torch.arange(4), losses)], 4, lambda batch: (batch, None, None), stream=STREAM, device=CPU
    )
    torch.testing.assert_close(seen.loss, losses, equal_nan=True, rtol=0, atol=0)


def test_evaluating_nests(make_model):
    model = make_model().train()
    with evaluating(model):
        with evaluating(model):
            pass
        assert not model.training
    assert model.training
