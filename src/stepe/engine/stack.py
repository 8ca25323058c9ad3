"""A stack: small models of one form train side by side as one batched model.

A small network's step costs little more than the calls that make it up. The probers of a cross-fitted probe are such
networks, several of one form: a stack makes each call once for all of them. Only the gradients are computed together.
Every model keeps its own optimizer and learning rate, and gets what training it alone would give, up to rounding and to
what dropout draws; between epochs nothing of the stack is left.

A layer is stacked by a rule of its own: under ``torch.vmap``, BatchNorm alone took longer than all models in turn.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.parametrize import is_parametrized
from torch.optim import SGD, Adam, AdamW, Optimizer

from stepe.engine.eager import WAYS_TO_UPDATE, EagerEngine
from stepe.engine.steps import Steps
from stepe.loop.plan import Plan, Share
from stepe.loop.probe import evaluating
from stepe.loop.randomness import Stream, seed_globals
from stepe.loop.task import Batch
from stepe.methods.base import Method
from stepe.models.tabular import CodeEmbeddings
from stepe.samples.samples import TensorSamples

SMALL_MODEL = 3_000_000
"""parameters, at most; what larger models compute takes far longer than the calls"""
DRAWS = 2**16
FUSED = (SGD, Adam, AdamW)
"""the optimizers of torch that can update all weights in one call on a CPU"""

Tensors = dict[str, Tensor | None]
"""the parameters and buffers of a layer by name, those of all models in one tensor each"""
Rule = Callable[[Tensor, int, Any, Tensors], Tensor]
"""(rows of all models one after the other, how many models, the first one's layer, its tensors) -> rows"""


class NotStackableError(Exception):
    """These models cannot be one stack, and train in turn."""


class _Products(torch.autograd.Function):
    """``x @ weight.T + bias`` for each model: autograd's own derivative copies every gradient into another layout."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        columns = weight.transpose(1, 2)
        return torch.bmm(x, columns) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, columns)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        return (
            torch.bmm(gradient, weight) if for_x else None,
            torch.bmm(gradient.transpose(1, 2), x) if for_weight else None,
            gradient.sum(1) if for_bias else None,
        )


def _linear(rows: Tensor, models: int, layer: nn.Linear, stacked: Tensors) -> Tensor:
    x = rows.reshape(models, -1, layer.in_features)
    outputs: Tensor = _Products.apply(x, stacked["weight"], stacked["bias"])  # type: ignore[no-untyped-call]
    return outputs.reshape(*rows.shape[:-1], layer.out_features)


def _batch_norm(rows: Tensor, models: int, layer: nn.BatchNorm1d, stacked: Tensors) -> Tensor:
    if rows.ndim != 2 or layer.momentum is None:
        raise NotStackableError("of BatchNorm, only the usual form on rows of features is stacked")
    # The channels of all models, next to each other, are the channels of one layer.
    channels = rows.reshape(models, -1, rows.shape[1]).transpose(0, 1).flatten(1)
    flat = {name: None if value is None or value.ndim < 2 else value.flatten() for name, value in stacked.items()}
    if layer.training and (tracked := stacked.get("num_batches_tracked")) is not None:
        tracked.add_(1)
    remembers = not layer.training or layer.track_running_stats
    mean, var = (flat["running_mean"], flat["running_var"]) if remembers else (None, None)
    by_batch = layer.training or mean is None
    found = F.batch_norm(channels, mean, var, flat["weight"], flat["bias"], by_batch, layer.momentum, layer.eps)
    return found.reshape(-1, models, rows.shape[1]).transpose(0, 1).flatten(0, 1)


def _layer_norm(rows: Tensor, models: int, layer: nn.LayerNorm, stacked: Tensors) -> Tensor:
    found = F.layer_norm(rows, layer.normalized_shape, eps=layer.eps).reshape(models, -1, *rows.shape[1:])

    def beside(value: Tensor) -> Tensor:
        return value.reshape(models, *[1] * (rows.ndim - value.ndim + 1), *value.shape[1:])

    weight, bias = stacked["weight"], stacked["bias"]
    found = found if weight is None else found * beside(weight)
    return (found if bias is None else found + beside(bias)).flatten(0, 1)


def _flatten(rows: Tensor, models: int, layer: nn.Flatten, stacked: Tensors) -> Tensor:
    if layer.start_dim < 1:
        raise NotStackableError("samples are flattened into one another")
    return rows.flatten(layer.start_dim, layer.end_dim)


def _dropout(rows: Tensor, models: int, layer: nn.Dropout, stacked: Tensors) -> Tensor:
    """Draw 16 bits a unit: on a CPU, torch takes longer to draw a number for each than the layers to compute it."""
    kept = round((1 - layer.p) * DRAWS)
    if not layer.training or rows.device.type != "cpu" or not 0 < kept < DRAWS:
        return F.dropout(rows, layer.p, layer.training)
    bits = torch.empty(-(-rows.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    mask = (bits[: rows.numel()] < kept - DRAWS // 2).view(rows.shape)
    return rows * (mask * torch.tensor(DRAWS / kept, dtype=rows.dtype))


def _code_embeddings(rows: Tensor, models: int, layer: CodeEmbeddings, stacked: Tensors) -> Tensor:
    """Look up the embeddings of all models as those of one, in which each finds its own further down."""
    codes = rows[:, layer.numbers :].long()
    model = torch.arange(models, device=rows.device).repeat_interleave(len(rows) // models)
    parts = [rows[:, : layer.numbers]]
    for i in range(len(layer)):
        weight = stacked[f"{i}.weight"]
        assert weight is not None
        parts.append(F.embedding(codes[:, i] + model * weight.shape[1], weight.flatten(0, 1)))
    return torch.cat(parts, dim=1)


def _number_by_number(rows: Tensor, models: int, layer: nn.Module, stacked: Tensors) -> Tensor:
    found: Tensor = layer(rows)
    return found


NUMBER_BY_NUMBER = (
    nn.Identity,
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.ELU,
    nn.SELU,
    nn.CELU,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.Tanh,
    nn.Sigmoid,
    nn.Softplus,
    nn.Hardtanh,
    nn.Hardswish,
)
RULES: dict[Any, Rule] = {
    nn.Linear.forward: _linear,
    nn.BatchNorm1d.forward: _batch_norm,
    nn.LayerNorm.forward: _layer_norm,
    nn.Flatten.forward: _flatten,
    nn.Dropout.forward: _dropout,
    CodeEmbeddings.forward: _code_embeddings,
    **{kind.forward: _number_by_number for kind in NUMBER_BY_NUMBER},
}
"""the rules by the function that a layer runs, which subclasses may share"""


def _matching(models: Sequence[nn.Module]) -> Iterator[tuple[nn.Module, ...]]:
    """Give the layers in the order in which they run, each with those in its place in the other models."""
    for module in models:
        _check_ordinary(module)
    first = models[0]
    if len({(type(module), module.training, module.extra_repr()) for module in models}) > 1:
        raise NotStackableError(f"what is a {type(first).__name__} in the first model is another one in others")
    if isinstance(first, nn.Sequential) and type(first).forward is nn.Sequential.forward:
        # Not children(), which names a layer that is used twice once.
        for layers in zip(*(module._modules.values() for module in models), strict=True):
            yield from _matching(layers)
    elif type(first).forward in RULES:
        for module in models:
            for part in module.children():
                _check_ordinary(part)
        yield tuple(models)
    else:
        raise NotStackableError(f"there is no rule for {type(first).__name__}")


def _check_ordinary(module: nn.Module) -> None:
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    if any(hooks) or "forward" in vars(module) or is_parametrized(module):
        raise NotStackableError(f"this {type(module).__name__} does more than its class says")


def _own_tensors(layers: Sequence[nn.Module]) -> dict[str, list[Tensor]]:
    """Collect the parameters and buffers of layers that match, and of their parts, by name; some have none."""
    named: list[Tensors] = []
    for layer in layers:
        parts = (*layer.named_parameters(remove_duplicate=False), *layer.named_buffers(remove_duplicate=False))
        named.append({**layer._parameters, **layer._buffers, **dict(parts)})
    return {name: [tensor for own in named if (tensor := own[name]) is not None] for name in named[0]}


def _check(alike: list[list[Tensor]], models: int) -> None:
    """Refuse tensors that are more than the parts of one would be."""
    tensors = [tensor for own in alike for tensor in own]
    if len(set(map(id, tensors))) < len(tensors):
        raise NotStackableError("layers share weights")
    for tensor in tensors:
        plain = type(tensor) in (nn.Parameter, Tensor) and tensor.is_leaf and not tensor.is_complex()
        if not plain or tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None):
            raise NotStackableError("a weight is more than a tensor")
    for own in alike:
        kinds = {(tensor.shape, tensor.dtype, tensor.requires_grad) for tensor in own}
        if len(own) not in (0, models) or len(kinds) > 1:
            raise NotStackableError("a weight is another one in other models")
    if sum(tensor.numel() for tensor in tensors) > SMALL_MODEL * models:
        raise NotStackableError("the models are large")


class Stack:
    """The models as one. From the start, and until it is left, their weights are parts of its tensors."""

    def __init__(self, models: Sequence[nn.Module]):
        self.models = len(models)
        layers = [(group[0], _own_tensors(group)) for group in _matching(models)]
        _check([own for _, tensors in layers for own in tensors.values()], self.models)
        self._shared: list[tuple[Tensor, list[Tensor]]] = []
        self._layers = [
            (RULES[type(layer).forward], layer, {name: self._take(own) for name, own in tensors.items()})
            for layer, tensors in layers
        ]

    def _take(self, own: list[Tensor]) -> Tensor | None:
        """Make one tensor, and the models' own become parts of it."""
        if not own:
            return None
        together = torch.stack([tensor.detach() for tensor in own])
        for tensor, part in zip(own, together.unbind(), strict=True):
            tensor.data = part
        self._shared.append((together, own))
        return together.requires_grad_(own[0].requires_grad)

    def __enter__(self) -> "Stack":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give every model its weights for itself."""
        for _, own in self._shared:
            for tensor in own:
                tensor.data = tensor.detach().clone()
        self._shared.clear()

    def __call__(self, rows: Tensor) -> Tensor:
        """Return outputs of all models, each for its own part of the rows."""
        for rule, layer, stacked in self._layers:
            rows = rule(rows, self.models, layer, stacked)
        return rows

    def backward(self, loss: Tensor) -> None:
        """Give the models' parameters their gradients."""
        loss.backward()  # type: ignore[no-untyped-call]
        for together, own in self._shared:
            gradients = [None] * self.models if together.grad is None else together.grad.unbind()
            for tensor, gradient in zip(own, gradients, strict=True):
                tensor.grad = gradient
            together.grad = None


def stack_of(engines: Sequence[EagerEngine], method: Method) -> Stack | None:
    """Make the engines' models one, if they can be: small ones, of layers that have a rule, with nothing special."""
    if len(engines) < 2 or not method.stacks or not all(map(_is_ordinary, engines)):
        return None
    models, samples = [engine.model for engine in engines], engines[0].samples
    some = torch.arange(min(2, len(samples)))  # BatchNorm without memory cannot judge a single one
    with ExitStack() as undo:
        try:
            stack = undo.enter_context(Stack(models))
            with ExitStack() as judging:
                for model in models:
                    judging.enter_context(evaluating(model))
                x = next(samples.fetch([some], Stream.named(engines[0].task.seed, "try out"), "plain"))
                found, expected = stack(torch.cat([x] * len(models))), torch.cat([model(x) for model in models])
            if torch.allclose(found, expected, rtol=1e-3, atol=1e-5, equal_nan=True):
                undo.pop_all()
                return stack
        except Exception:  # whatever it is, training in turn is the answer; its own error, if it has one, says more
            return None
    return None


def _is_ordinary(engine: EagerEngine) -> bool:
    return (
        type(engine) is EagerEngine
        and isinstance(engine.samples, TensorSamples)
        and engine.calls_model
        and engine.amp is None
        and engine.average is None
        and engine.ranks.world == 1
    )


def train_steps(stack: Stack, engines: Sequence[EagerEngine], plans: Sequence[Plan], method: Method) -> Steps[None]:
    """Train each engine's model for an epoch on its own plan; afterwards they are no stack any more."""
    every = [engine.shares(plan) for engine, plan in zip(engines, plans, strict=True)]
    feeds = [engine.batches(plan, shares) for engine, plan, shares in zip(engines, plans, every, strict=True)]
    with stack, _fused([engine.optimizer for engine in engines]):
        for step in range(max(map(len, every))):
            turns = [
                Turn(engine, plan, shares[step], len(shares), next(feed))
                for engine, plan, shares, feed in zip(engines, plans, every, feeds, strict=True)
                if step < len(shares)
            ]
            # Batches of other sizes, at the end of an epoch, are no part of a stack: BatchNorm would see what fills it.
            if len(turns) == len(engines) and len({len(turn.batch.y) for turn in turns}) == 1:
                _train_together(stack, turns, method)
            else:
                for turn in turns:
                    turn.engine.train_on(turn.batch, turn.plan, turn.share, turn.steps, method)
            yield None
    for engine, plan, shares in zip(engines, plans, every, strict=True):
        engine.end_epoch(plan, method, shares)


class Turn(NamedTuple):
    """A batch, and the engine that trains on it."""

    engine: EagerEngine
    plan: Plan
    share: Share
    steps: int
    """steps in the epoch"""
    batch: Batch


def _train_together(stack: Stack, turns: list[Turn], method: Method) -> None:
    first = turns[0]
    seed_globals(first.engine.draws(first.plan.epoch, first.share.step), first.engine.device)
    with ExitStack() as at_rates:
        for turn in turns:
            at_rates.enter_context(turn.engine.at_rate(turn.plan, turn.share, turn.steps))
        stack.backward(method.loss(stack, _joined([turn.batch for turn in turns])))
        for turn in turns:
            turn.engine.optimizer.step()


@contextmanager
def _fused(optimizers: Sequence[Optimizer]) -> Iterator[None]:
    """Have torch's own optimizers update all weights in one call: how an update is computed, not what comes out."""
    groups = [group for optimizer in optimizers if type(optimizer) in FUSED for group in optimizer.param_groups]
    groups = [group for group in groups if all(weight.device.type == "cpu" for weight in group["params"])]
    groups = [group for group in groups if not any(group.get(way) for way in WAYS_TO_UPDATE)]
    ways = [group["fused"] for group in groups]
    for group in groups:
        group["fused"] = True
    try:
        yield
    finally:
        for group, way in zip(groups, ways, strict=True):
            group["fused"] = way


def _joined(batches: list[Batch]) -> Batch:
    """Join batches of one length, one after the other."""
    weights = [batch.weight / batch.total_weight for batch in batches if batch.weight is not None]
    return Batch(
        x=torch.cat([batch.x for batch in batches]),
        y=torch.cat([batch.y for batch in batches]),
        target=torch.cat([batch.target for batch in batches]),
        index=torch.cat([batch.index for batch in batches]),
        weight=torch.cat(weights) if weights else None,
        total_weight=1.0 if weights else batches[0].total_weight,
        parts=len(batches),
    )
