from collections import namedtuple
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from stepe import InputError
from stepe.engine.eager import EagerEngine, to_device
from stepe.engine.learning_rate import ProgressRate, RateShape, constant, cosine
from stepe.loop.plan import Plan
from stepe.loop.randomness import Stream, seed_globals
from stepe.loop.task import Criterion
from stepe.methods import Task, make_method
from stepe.samples.samples import Augment, TensorSamples

CPU = torch.device("cpu")


def unreduced(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def make_engine(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    criterion: Criterion = unreduced,
    augment: Augment | None = None,
    shape: RateShape = constant,
    **options: Any,
) -> EagerEngine:
    task = Task(y, classes=3, epochs=4, seed=5, criterion=criterion)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    return EagerEngine(
        model,
        TensorSamples(x, augment),
        task,
        optimizer=optimizer,
        rate=ProgressRate(optimizer, shape),
        device=CPU,
        batch_size=16,
        probe_batch_size=32,
        **options,
    )


def plain(engine: EagerEngine):
    method = make_method("plain")
    method.task = engine.task
    return method


def whole_plan(n: int, **options: Any) -> Plan:
    return Plan(epoch=1, epochs=4, kept=torch.ones(n, dtype=torch.bool), seed=5, **options)


def test_an_epoch_is_the_training_loop_one_would_write_by_hand(blobs, make_model, bits):
    engine = make_engine(make_model(), blobs.x, blobs.given, shape=cosine)
    plan = replace(whole_plan(97), kept=torch.arange(97) % 4 > 0)
    reported = engine.train(plan, plain(engine))

    model = make_model().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    total, batches = 0.0, torch.split(plan.order(), 16)
    assert [len(batch) for batch in batches] == [16, 16, 16, 16, 8]
    for step, index in enumerate(batches):
        optimizer.param_groups[0]["lr"] = 0.1 * cosine((1 + step / len(batches)) / 4)
        seed_globals(Stream.named(5, "model", 1, step))
        loss = F.cross_entropy(model(blobs.x[index]), blobs.given[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += float(loss.detach()) * len(index)
    torch.testing.assert_close(engine.model.state_dict(), model.state_dict(), rtol=1e-5, atol=1e-6)
    assert reported == pytest.approx(total / 72, rel=1e-6)
    assert engine.learning_rate == optimizer.param_groups[0]["lr"]


def test_weights_scale_each_samples_part_of_the_batch_mean(blobs, make_model):
    weight = torch.rand(97, generator=torch.Generator().manual_seed(0))
    engine = make_engine(make_model(), blobs.x, blobs.given)
    plan = whole_plan(97, weight=weight)
    engine.train(plan, plain(engine))

    model = make_model().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    for share in plan.batches(16):
        seed_globals(Stream.named(5, "model", 1, share.step))
        losses = unreduced(model(blobs.x[share.index]), blobs.given[share.index])
        optimizer.zero_grad()
        ((losses * weight[share.index]).sum() / weight[share.index].sum()).backward()
        optimizer.step()
    torch.testing.assert_close(engine.model.state_dict(), model.state_dict(), rtol=1e-5, atol=1e-6)


def test_a_weight_of_one_is_no_weight(blobs, make_model, bits):
    engines = [make_engine(make_model(), blobs.x, blobs.given) for _ in range(2)]
    engines[0].train(whole_plan(97), plain(engines[0]))
    engines[1].train(whole_plan(97, weight=torch.ones(97)), plain(engines[1]))
    assert bits(engines[0].model) == bits(engines[1].model)


def test_a_batch_that_weighs_nothing_is_no_disaster(blobs, make_model):
    engine = make_engine(make_model(), blobs.x, blobs.given)
    assert engine.train(whole_plan(97, weight=torch.zeros(97)), plain(engine)) == 0.0
    assert all(torch.isfinite(value).all() for value in engine.model.state_dict().values())


def test_targets_of_the_plan_replace_the_labels(blobs, make_model, bits):
    targets = (blobs.given + 1) % 3
    by_target = make_engine(make_model(), blobs.x, blobs.given)
    by_target.train(whole_plan(97, target=targets), plain(by_target))
    by_label = make_engine(make_model(), blobs.x, targets)
    by_label.train(whole_plan(97), plain(by_label))
    assert bits(by_target.model) == bits(by_label.model)


@pytest.mark.parametrize("reshape", [torch.mean, lambda losses: losses[:, None]], ids=["reduced", "column"])
@pytest.mark.parametrize("weight", [None, torch.ones(97)], ids=["unweighted", "weighted"])
def test_a_criterion_without_one_loss_per_sample_is_refused_at_the_first_step(reshape, weight, blobs, make_model, bits):
    def criterion(outputs: Tensor, targets: Tensor) -> Tensor:
        return reshape(unreduced(outputs, targets))

    engine = make_engine(make_model(), blobs.x, blobs.given, criterion=criterion)
    with pytest.raises(InputError, match='reduction="none"'):
        engine.train(whole_plan(97, weight=weight), plain(engine))
    torch.testing.assert_close(engine.model[0].weight, make_model()[0].weight, rtol=0, atol=0)


def test_an_epoch_does_not_depend_on_earlier_draws_or_probes(blobs, make_model, bits):
    def augment(x: Tensor, index: Tensor, stream: Stream) -> Tensor:
        return x + 0.1 * torch.randn_like(x)  # against the rule, from the global generator

    results = []
    for disturbed in (False, True):
        engine = make_engine(make_model(), blobs.x, blobs.given, augment=augment)
        torch.manual_seed(int(disturbed))
        if disturbed:
            engine.probe(1, "augmented")
        engine.train(whole_plan(97), plain(engine))
        results.append(bits(engine.model))
    assert results[0] == results[1]


def test_probe_views_see_and_skip_the_augmentation(blobs, make_model):
    def augment(x: Tensor, index: Tensor, stream: Stream) -> Tensor:
        return x + stream.normal(index)[:, None]

    engine = make_engine(make_model(), blobs.x, blobs.given, augment=augment)
    unaugmented = make_engine(make_model(), blobs.x, blobs.given)
    assert torch.equal(engine.probe(1, "plain").loss, unaugmented.probe(1, "augmented").loss)
    augmented = engine.probe(1, "augmented").loss
    assert not torch.equal(augmented, engine.probe(1, "plain").loss)
    assert torch.equal(augmented, engine.probe(1, "augmented").loss)
    assert not torch.equal(augmented, engine.probe(2, "augmented").loss)  # another epoch, other draws


def test_judging_other_samples_uses_their_own_labels(blobs, make_model):
    engine = make_engine(make_model(), blobs.x, blobs.given)
    seen = engine.judge(TensorSamples(blobs.x[:10]), blobs.clean[:10])
    expected = engine.model.eval()(blobs.x[:10])
    torch.testing.assert_close(seen.loss, unreduced(expected, blobs.clean[:10]).detach())
    assert torch.equal(seen.prediction, expected.argmax(1))


@pytest.mark.parametrize("outputs", [1, 2])
def test_fewer_outputs_than_classes_are_no_logits(outputs, blobs):
    engine = make_engine(
        nn.Linear(6, outputs), blobs.x, blobs.given, criterion=lambda found, y: (found[:, 0] - y).square()
    )
    seen = engine.probe(0, "plain")
    assert torch.isfinite(seen.loss).all()
    assert seen.prediction is None


def test_training_turns_the_whole_model_to_training_as_it_understands_it(blobs, make_model):
    class Frozen(nn.Module):
        """As people freeze a BatchNorm: by overriding ``train``."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = make_model()

        def train(self, mode: bool = True) -> "Frozen":
            super().train(mode)
            self.layers[1].eval()
            return self

        def forward(self, x: Tensor) -> Tensor:
            return self.layers(x)

    engine = make_engine(Frozen().eval(), blobs.x, blobs.given)
    engine.train(whole_plan(97), plain(engine))
    engine.probe(1, "plain")
    assert engine.model.training
    assert engine.model.layers[3].training
    assert not engine.model.layers[1].training
    assert int(engine.model.layers[1].num_batches_tracked) == 0


@pytest.mark.parametrize(("amp", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_reduced_precision_is_for_the_model_alone(amp, dtype, blobs, make_model):
    seen = []

    def forward(model: nn.Module, x: Tensor) -> Tensor:
        seen.append(model(x))
        return seen[-1]

    engine = make_engine(make_model(), blobs.x, blobs.given, forward=forward, amp=amp)
    assert engine.forward(blobs.x).dtype == torch.float32
    assert seen[0].dtype == dtype
    assert engine.scaler.is_enabled() == (amp == "fp16")
    before = engine.probe(0, "plain").loss.mean()
    engine.train(whole_plan(97), plain(engine))
    assert engine.probe(1, "plain").loss.mean() < before
    assert all(p.dtype == torch.float32 for p in engine.model.parameters())


def test_the_state_holds_optimizer_rate_and_loss_scale(blobs, make_model):
    def make() -> EagerEngine:
        return make_engine(make_model(), blobs.x, blobs.given, amp="fp16")

    engine, other = make(), make()
    engine.train(whole_plan(97), plain(engine))
    assert engine.state_dict()["scaler"] != other.state_dict()["scaler"]
    other.load_state_dict(engine.state_dict())
    assert engine.state_dict()["scaler"] == other.state_dict()["scaler"]
    torch.testing.assert_close(engine.state_dict()["optimizer"], other.state_dict()["optimizer"], rtol=0, atol=0)


def test_a_loaded_state_does_not_change_how_updates_are_computed(blobs, make_model):
    """A graph can hold only fused updates: a checkpoint of the eager engine must not switch them off."""
    saved = make_engine(make_model(), blobs.x, blobs.given).state_dict()
    engine = make_engine(make_model(), blobs.x, blobs.given)
    engine.optimizer.param_groups[0].update(fused=True, foreach=False)
    engine.load_state_dict(saved)
    assert engine.optimizer.param_groups[0]["fused"] is True
    assert engine.optimizer.param_groups[0]["foreach"] is False


def test_double_precision_models_stay_in_double(blobs, make_model):
    engine = make_engine(make_model().double(), blobs.x.double(), blobs.given)
    assert engine.forward(blobs.x.double()).dtype == torch.float64
    assert engine.train(whole_plan(97), plain(engine)) > 0
    assert engine.probe(0, "plain").loss.dtype == torch.float32


def test_tensors_are_moved_wherever_they_are_in_the_inputs():
    Pair = namedtuple("Pair", "left right")
    meta = torch.device("meta")
    x = {"a": [torch.zeros(2), "text"], "b": (torch.zeros(1), Pair(torch.zeros(3), 7))}
    moved = to_device(x, meta)
    assert moved["a"][0].device == moved["b"][0].device == moved["b"][1].left.device == meta
    assert moved["a"][1] == "text"
    assert isinstance(moved["b"], tuple)
    assert isinstance(moved["b"][1], Pair)
    assert moved["b"][1].right == 7


def test_inputs_that_know_how_to_move_move_themselves():
    class Encoding:
        device = CPU

        def to(self, device: torch.device) -> "Encoding":
            self.device = device
            return self

    meta = torch.device("meta")
    assert to_device(Encoding(), meta).device == meta
    packed = to_device(pack_sequence([torch.zeros(3, 2), torch.zeros(1, 2)]), CPU)
    assert isinstance(packed, PackedSequence)
