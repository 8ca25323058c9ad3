"""``fit``: the algorithm. Each epoch, probe if the method asks, plan, train as planned; write down what happened."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from stepe.engine.eager import EagerEngine, ModelForward
from stepe.engine.learning_rate import RateShape, cosine
from stepe.engine.resident import ResidentEngine
from stepe.engine.steps import Steps, exhaust
from stepe.errors import InputError, RunError
from stepe.loop.ledger import Ledger, Observation
from stepe.loop.metrics import Truth, accuracy, auroc, detection
from stepe.loop.plan import batch_sizes
from stepe.loop.processes import Ranks
from stepe.loop.randomness import preserved
from stepe.loop.schedule import check_epochs
from stepe.methods import OPTIONS_OF_OTHERS, Criterion, Method, StepwiseElimination, Task, method_with
from stepe.methods.doors import DEFAULT_METHOD, announce_method
from stepe.models.copying import copy_of
from stepe.options.check import checked_beside
from stepe.options.method import (
    GuessMemory,
    Memory,
    MinKeep,
    NoiseRate,
    Probe,
    ProbeEvery,
    RampEnd,
    RhoMax,
    Schedule,
    Score,
    Softness,
    Sticky,
    View,
    Warmup,
)
from stepe.options.running import Epochs, Seed
from stepe.samples.given_labels import check_labels, read_labels
from stepe.samples.samples import Augment, Samples, TensorSamples, as_samples, check_view
from stepe.training.building import (
    Observer,
    Result,
    Training,
    check_amp,
    check_batch_size,
    check_class_names,
    check_groups,
    check_held_out,
    check_ids,
    check_initialised,
    check_trusted,
    check_weight,
    count_classes,
    cross_entropy,
    describe,
    determinism,
    engine_class,
    find_device,
    held_out_samples,
    make_optimizer,
    make_rate,
    place,
    summarise,
)
from stepe.training.judging.choice import make_prober
from stepe.training.judging.cross_fitted import lengthen_steps
from stepe.training.session import Session, diverged

if TYPE_CHECKING:
    from stepe.training.recorder import Recorder


@dataclass(frozen=True)
class Job:
    """A run that is ready to be carried out."""

    steps: Steps[Result]
    device: torch.device
    deterministic: bool

    def finish(self) -> Result:
        """Carry it out. The user's random generators and torch's settings are as before when it is done."""
        with preserved(self.device), determinism(self.deterministic):
            return exhaust(self.steps)


@checked_beside(OPTIONS_OF_OTHERS)
def fit(
    model: nn.Module,
    data: Any,
    labels: Any = None,
    *,
    epochs: Epochs = 60,
    rho_max: RhoMax = None,
    warmup: Warmup = None,
    noise_rate: NoiseRate | None = None,
    probe: Probe = "in-sample",
    min_keep: MinKeep = 0.0,
    schedule: Schedule = "auto",
    ramp_end: RampEnd = None,
    score: Score = "auto",
    memory: Memory = 0.0,
    sticky: Sticky = False,
    softness: Softness = 0.0,
    probe_every: ProbeEvery = 1,
    guess_memory: GuessMemory = None,
    view: View = "augmented",
    method: str | Method = DEFAULT_METHOD["fit"],
    groups: Any = None,
    trusted: Any = None,
    weight: Any = None,
    class_names: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    test: Any = None,
    truth: Truth | None = None,
    batch_size: int = 128,
    probe_batch_size: int | None = None,
    optimizer: Optimizer | Callable[[Iterator[nn.Parameter]], Optimizer] | None = None,
    learning_rate: float | None = None,
    weight_decay: float = 5e-4,
    rate_shape: RateShape = cosine,
    scheduler: LRScheduler | Callable[[Optimizer], LRScheduler] | None = None,
    scheduler_interval: Literal["epoch", "step"] = "epoch",
    criterion: Criterion | None = None,
    forward: ModelForward | None = None,
    augment: Augment | None = None,
    plain_view: Any = None,
    loader_options: dict[str, Any] | None = None,
    amp: Literal["bf16", "fp16"] | None = None,
    device: str | torch.device = "auto",
    engine: Literal["eager", "resident", "compiled"] = "eager",
    deterministic: bool = False,
    seed: Seed = 0,
    run: "str | Path | Recorder | None" = None,
    resume: bool = False,
    checkpoint_every: int = 1,
    observers: tuple[Observer, ...] = (),
) -> Result:
    """Train ``model`` on labels that cannot be trusted.

    Args:
        model: any module that turns inputs into logits.
        data: a tensor of inputs, a pair (inputs, labels), or a map-style data set returning ``(x, y)``.
        labels: one integer per sample, if ``data`` does not bring them; with a ``criterion`` of your own, also one
            number (a regression) or one row of 0 and 1 (several labels at once) per sample.
        epochs: length of the run.
        rho_max: largest share of the samples that is ever dropped; by default it follows from ``noise_rate``, and
            without either it is estimated in the warm-up (``"auto"``).
        warmup: epochs before anything is dropped; by default a sixth of the run. ``"auto"``: until nothing but noise is
            learned.
        noise_rate: known share of wrong labels.
        probe: who judges the samples. ``in-sample``: the model in training, as in the paper. ``cross:5``: models that
            never trained on them, one per fold; ``cross:2x2``: on two independent splits. ``auto``: cross-fitted,
            until the model turns out in the warm-up not to learn its labels by heart, and in-sample from then on.
        min_keep: share of every class, or of every one of the ``groups``, that is never dropped.
        schedule: how the share that is dropped grows: ``auto`` (Eq. 2), ``linear``, ``early``, ``proportional`` or a
            function of the progress; it is full at ``ramp_end``.
        score: what samples are ranked by: ``loss``, ``guess``, ``posterior`` or ``auto``; ``memory`` smooths the losses
            over probes, ``guess_memory`` the running guess.
        sticky: whether what was dropped stays dropped.
        softness: above 0, suspicious samples weigh less instead of being dropped.
        probe_every: epochs from one probe to the next.
        view: whether the probe sees inputs augmented as in training, or plain.
        method: another method than Step-E: by name, as it is by default, or an instance with options of its own, as in
            ``StepEPlus(rho_max=0.3, cutmix=0.5)`` (:mod:`stepe.methods`). ``oracle`` is plain training under another
            name: hand it the clean labels.
        groups: one integer per sample for ``min_keep``; by default the class.
        trusted: one bool per sample: labels that were checked; these samples are never dropped.
        weight: one number per sample, how much it counts in training; which samples are dropped goes by their losses
            alone.
        class_names: what the classes, or marks, are called in the issues; by default their numbers.
        ids: what the samples are called there; by default their positions.
        test: held-out data in the same form, for the accuracy in the history. Never trained on.
        truth: which samples are noisy, in a benchmark. Only metrics see it.
        optimizer: an optimizer, or a function of the parameters; by default SGD with Nesterov momentum 0.9. Models that
            only judge train on fewer samples; under Adam and other optimizers with betas their steps are longer for it.
        learning_rate: for the default optimizer; 0.1 unless given.
        rate_shape: the learning rate as a function of the run's progress in [0, 1]; by default cosine decay.
        scheduler: instead of that, a torch scheduler or a function of the optimizer that makes one;
            ``scheduler_interval`` says whether it counts epochs, or steps of full-length epochs.
        criterion: (logits, targets) -> one loss per sample; by default cross-entropy.
        forward: (model, inputs) -> logits, if calling the model is not enough.
        augment: for tensors, (inputs, indices, stream) -> inputs; a data set brings its own transforms.
        plain_view: for data sets, the same samples without augmentation, for ``view="plain"``.
        engine: ``eager`` works for everything; ``resident`` keeps tensors on a GPU and trains by CUDA graphs;
            ``compiled`` also compiles their kernels, which takes a minute and pays off over many runs.
        loader_options: for data sets, passed to the ``DataLoader`` (``num_workers``, ``pin_memory``...).
        seed: everything random follows from it.
        run: a folder to write; ``resume`` continues what is there, to the same result as if never interrupted.
        observers: follow the run, epoch by epoch.

    Under torchrun, every process calls this alike: batches are cut into a share for each, losses and gradients come
    together again, and the first process alone writes and reports. ``batch_size`` is that of all processes together.

    Returns:
        The trained model with its ledger, its history and a summary.
    """
    arguments = locals()
    options = {name: arguments.pop(name) for name in StepwiseElimination.options()}
    job = begin(**arguments | {"method": method_with(method, options)})
    announce_method("fit", method)
    return job.finish()


def begin(
    model: nn.Module,
    data: Any,
    labels: Any = None,
    *,
    method: Method,
    epochs: int = 60,
    noise_rate: float | None = None,
    probe: str = "in-sample",
    groups: Any = None,
    trusted: Any = None,
    weight: Any = None,
    class_names: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    test: Any = None,
    truth: Truth | None = None,
    batch_size: int = 128,
    probe_batch_size: int | None = None,
    optimizer: Optimizer | Callable[[Iterator[nn.Parameter]], Optimizer] | None = None,
    learning_rate: float | None = None,
    weight_decay: float = 5e-4,
    rate_shape: RateShape = cosine,
    scheduler: LRScheduler | Callable[[Optimizer], LRScheduler] | None = None,
    scheduler_interval: Literal["epoch", "step"] = "epoch",
    criterion: Criterion | None = None,
    forward: ModelForward | None = None,
    augment: Augment | None = None,
    plain_view: Any = None,
    loader_options: dict[str, Any] | None = None,
    amp: Literal["bf16", "fp16"] | None = None,
    device: str | torch.device = "auto",
    engine: Literal["eager", "resident", "compiled"] = "eager",
    deterministic: bool = False,
    seed: int = 0,
    run: "str | Path | Recorder | None" = None,
    resume: bool = False,
    checkpoint_every: int = 1,
    observers: tuple[Observer, ...] = (),
) -> Job:
    """Prepare what :func:`fit` carries out at once; of all methods it takes the instance."""
    ranks = Ranks.current()
    device = find_device(device)
    if isinstance(data, tuple) and len(data) == 2:
        data, labels = data[0], data[1] if labels is None else labels
    samples = place(as_samples(data, augment, plain_view, **(loader_options or {})), device)
    if isinstance(samples, TensorSamples) and (plain_view is not None or loader_options):
        raise InputError("plain_view and loader_options are for data sets; tensors need neither")
    any_kind = criterion is not None
    given = check_labels(read_labels(data) if labels is None else labels, len(samples), any_kind=any_kind)
    held_out = held_out_samples(test, device, any_kind=any_kind, **(loader_options or {}))
    check_epochs(epochs, warmup=0)
    check_amp(amp)
    if resume and run is None:
        raise InputError("resume=True needs run=, the folder of the run to continue")
    batch_size = check_batch_size(batch_size, len(samples))
    if batch_size < ranks.world:
        raise InputError(
            f"a batch has {batch_size} samples for {ranks.world} processes; batch_size counts those of all processes "
            "together: give each at least one"
        )
    probe_batch_size = check_batch_size(4 * batch_size if probe_batch_size is None else probe_batch_size, len(samples))
    if truth is not None and len(truth.noisy) != len(samples):
        raise InputError(f"the truth covers {len(truth.noisy)} samples, the data {len(samples)}")

    probe = probe if method.cross_fits else "in-sample"
    if probe != "in-sample" and not all(made is None or callable(made) for made in (optimizer, scheduler)):
        raise InputError("a cross-fitted probe trains copies of the model: give optimizer and scheduler as functions")
    classes = count_classes(given)
    if held_out is not None:
        check_held_out(held_out[1], given)
    task = Task(
        labels=given,
        classes=classes,
        epochs=epochs,
        seed=seed,
        criterion=criterion or cross_entropy(classes),
        noise_rate=noise_rate,
        groups=None if groups is None else check_groups(groups, len(samples)),
        trusted=None if trusted is None else check_trusted(trusted, len(samples)),
        weight=None if weight is None else check_weight(weight, len(samples)),
        probe=probe,
        device=device,
    )
    ledger = Ledger(len(samples))
    method.start(task, ledger)
    check_initialised(model)
    network = method.network(model)
    if network is not model and isinstance(optimizer, Optimizer):
        raise InputError(
            f"method {method.name!r} trains {method.networks} networks, and the optimizer holds the weights of one: "
            "give optimizer as a function of the parameters"
        )
    check_view(samples, method.view)
    kind = engine_class(engine)
    full_steps = len(batch_sizes(len(samples), batch_size, ranks.world))

    def make_engine(model: nn.Module, task: Task, share: float = 1.0) -> EagerEngine:
        fused = issubclass(kind, ResidentEngine)
        made = make_optimizer(optimizer, model.to(device), learning_rate, weight_decay, fused=fused)
        lengthen_steps(made, share)
        return kind(
            model,
            samples,
            task,
            optimizer=made,
            rate=make_rate(rate_shape, scheduler, scheduler_interval, made, epochs=epochs, full_steps=full_steps),
            device=device,
            batch_size=batch_size,
            probe_batch_size=probe_batch_size,
            forward=forward,
            amp=amp,
            ranks=ranks,
            averaging=method.averaging,
        )

    untrained = network if probe == "in-sample" else copy_of(network, "probe='in-sample' needs no copies")
    runner = make_engine(network, task)
    prober = make_prober(probe, untrained, task, make_engine, runner)
    config = describe(method, task, runner, amp, deterministic)
    named = check_class_names(class_names, classes), check_ids(ids, len(samples))
    training = Training(Session(task, method, ledger), runner, prober, config, *named)
    if run is not None and ranks.is_first:
        from stepe.training.recorder import Recorder  # needs more than torch and numpy

        recorder = run if isinstance(run, Recorder) else Recorder(run)
        recorder.prepare(resume=resume, checkpoint_every=checkpoint_every)
        runner.try_out()
        steps = recorder.holding(_run(training, held_out, truth, (recorder, *observers)), resume=resume)
    else:
        steps = _run(training, held_out, truth, observers if ranks.is_first else ())
    return Job(steps, device, deterministic)


def _run(
    training: Training,
    test: "tuple[Samples, Tensor] | None",
    truth: Truth | None,
    observers: tuple[Observer, ...],
) -> Steps[Result]:
    """Carry out the paper's algorithm, top to bottom."""
    session, engine, prober = training.session, training.engine, training.prober
    method, ledger = session.method, session.ledger
    for observer in observers:
        observer.run_started(training)
    training.align()

    while session.epoch < session.task.epochs:
        if session.wants_probe():
            yield from _probe(training)
        plan = session.begin_epoch()
        yield from prober.settle(session.epoch, method)
        yield from prober.train_steps(plan, method)
        train_loss = yield from engine.train_steps(plan, method)
        if not math.isfinite(train_loss):
            raise RunError(diverged(f"the training loss became {train_loss} in epoch {session.epoch}"))

        row = session.end_epoch(train_loss=train_loss, learning_rate=engine.learning_rate)
        if truth is not None:
            row |= asdict(detection(ledger["dropped"].cpu(), truth.noisy))
            row["auroc"] = auroc(method.scores(ledger).double().cpu(), truth.noisy) if row["probed"] else None
        if test is not None:
            seen = engine.judge(*test)
            yield engine.mark()
            if session.task.classes:
                row["test_accuracy"] = accuracy(_predictions(seen).cpu(), test[1])
            else:
                row["test_loss"] = float(seen.loss.mean())
        for observer in observers:
            observer.epoch_ended(training, row)

    yield from _probe(training)  # the last word on every sample comes from the finished model
    last_look = None if test is None else engine.judge(*test)
    engine.hand_over()
    belief = method.make_belief(ledger)
    result = Result(training, belief, summarise(training, belief, truth), last_look, None if test is None else test[1])
    for observer in observers:
        observer.run_ended(result)
    return result


def _probe(training: Training) -> Steps[None]:
    session = training.session
    seen = yield from training.prober.probe(session.epoch, session.method)
    session.observe(session.epoch, seen)


def _predictions(seen: Observation) -> Tensor:
    if seen.prediction is None:
        raise InputError("the test accuracy needs logits of shape (batch, classes) from the model")
    return seen.prediction
