"""The probe: per-sample losses of the current model on all samples (section 3.3, step 1).

The model is in eval mode, so BatchNorm statistics stay untouched; every module's mode is put back as it was; the
global random generators are too, so training draws what it would have drawn without the probe.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from stepe.errors import InputError
from stepe.loop.ledger import Observation
from stepe.loop.randomness import Stream, seeded

if TYPE_CHECKING:
    from stepe.loop.labels import Read

JudgeBatch = Callable[[Any], "tuple[Tensor, Tensor | None, Tensor | None]"]
"""a batch -> (per-sample losses, logits or None, given labels or None)"""


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Go to eval mode without gradients; afterwards every module is in the mode it was in, frozen ones included."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


def probe(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Any]],
    n: int,
    judge: JudgeBatch,
    *,
    stream: Stream,
    device: torch.device,
    probabilities: bool = False,
    read: "Read | None" = None,
) -> Observation:
    """Judge every sample once. ``batches`` yields (sample indices, batch) and must cover 0..n-1 exactly.

    ``read`` says what outputs tell; by default they are logits of classes.
    """
    loss = torch.full((n,), float("nan"), dtype=torch.float32, device=device)
    times = torch.zeros(n, dtype=torch.int64)  # on the host, where the indices are: no waiting for the device
    columns: dict[str, Tensor] = {}
    # A model that stays random in eval mode draws under the probe's own name.
    with evaluating(model), seeded(stream, device):
        for index, batch in batches:
            losses, logits, labels = judge(batch)
            times += torch.bincount(index, minlength=n)
            index = index.to(device)
            check_losses(losses, len(index))
            loss[index] = losses.detach().to(torch.float32)
            if logits is not None:
                _write(columns, index, n, (read or read_logits)(logits, labels, probabilities))
    if not bool((times == 1).all()):
        missed, again = int((times == 0).sum()), int((times > 1).sum())
        raise InputError(
            f"the probe missed {missed} of {n} samples and saw {again} more than once; "
            "it must see each sample once, in any order"
        )
    return replace(Observation(loss), **columns)  # type: ignore[arg-type]


def check_losses(losses: Tensor, expected: int) -> None:
    """Refuse losses that are not one number per sample: a reduced one would train on, silently, at the wrong rate."""
    if losses.shape != (expected,):
        raise InputError(
            f"a batch of {expected} samples gave losses of shape {tuple(losses.shape)}; one loss per sample is needed: "
            'use reduction="none" and average over all dimensions but the first'
        )


def read_logits(logits: Tensor, labels: Tensor | None, probabilities: bool) -> dict[str, Tensor]:
    """Read from logits the columns of an observation; logarithms of probabilities are logits too."""
    logits = logits.detach().to(torch.float32)
    top = logits.argmax(1)
    logs = torch.log_softmax(logits, 1)
    read = {"prediction": top, "confidence": logs.gather(1, top[:, None]).squeeze(1).exp()}
    if labels is not None:
        read["margin"] = margins(logits, labels)
        read["given_probability"] = logs.gather(1, labels[:, None]).squeeze(1).exp()
    if probabilities:
        read["probability"] = logs.exp()
    return read


def margins(logits: Tensor, labels: Tensor) -> Tensor:
    """Subtract the largest other logit from the label's. Without scatter, which in deterministic mode asks the host.

    >>> margins(torch.tensor([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]]), torch.tensor([0, 1]))
    tensor([ 1., -2.])
    """
    own = torch.arange(logits.shape[1], device=logits.device) == labels[:, None]
    return logits.gather(1, labels[:, None]).squeeze(1) - logits.masked_fill(own, -torch.inf).amax(1)


def among_classes(probability: Tensor, classes: int) -> Tensor:
    """Take the probabilities of the classes that the labels have, given that it is one of them: outputs may be more.

    >>> among_classes(torch.tensor([[0.2, 0.3, 0.5]]), 2)
    tensor([[0.4000, 0.6000]])
    """
    if probability.shape[1] <= classes:
        return probability
    among = probability[:, :classes]
    return among / among.sum(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)


def judged(probability: Tensor, labels: Tensor) -> Observation:
    """Observe what the probabilities of others say about the given labels."""
    logs = probability.clamp(min=torch.finfo(torch.float32).tiny).log()
    loss = -logs.gather(1, labels[:, None]).squeeze(1)
    seen = Observation(loss, judged_by="others")
    return replace(seen, **read_logits(logs, labels, probabilities=True))  # type: ignore[arg-type]


def _write(columns: dict[str, Tensor], index: Tensor, n: int, read: dict[str, Tensor]) -> None:
    for name, values in read.items():
        if name not in columns:
            columns[name] = torch.zeros((n, *values.shape[1:]), dtype=values.dtype, device=values.device)
        columns[name][index] = values
