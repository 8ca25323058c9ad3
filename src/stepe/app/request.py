"""What was asked of ``stepe clean``, checked before anything is trained."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stepe.app.networks import parts_that_serve, tuning_for
from stepe.data.source import Source
from stepe.errors import InputError
from stepe.loop.ledger import Ledger
from stepe.methods import EVERY_METHOD, RECIPES, Method, Task, make_method, method_class
from stepe.methods.doors import DEFAULT_METHOD
from stepe.models.pretrained import check_model
from stepe.run.record import AUDIT, Request
from stepe.samples.given_labels import as_tensor
from stepe.training.building import cross_entropy

METHOD = DEFAULT_METHOD["clean"]
PAPER, PAPERS_METHOD = "paper", "step-e"
SIDE_BY_SIDE = ("plain", METHOD, "oracle")
WINDOWS = 0.5
"""share of the pictures that Step-E+ cuts a window into, by what served on CIFAR (``docs/research/step-e-plus.md``)"""


def method_options(request: Request, method: str) -> dict[str, Any]:
    """Choose, of what was asked for, the options that a method understands."""
    wanted: dict[str, Any] = {"rho_max": request.rho_max, "warmup": request.warmup, "min_keep": request.min_keep or 0.0}
    if request.preset == PAPER and method == PAPERS_METHOD:
        wanted["score"] = "loss"
    if method == METHOD:
        wanted |= _parts_for_pictures(request) if request.augments else parts_that_serve(request.probe)
    if not request.blends:
        wanted["mixup"] = 0
    return {name: value for name, value in wanted.items() if name in method_class(method).options()}


def _parts_for_pictures(request: Request) -> dict[str, Any]:
    """Choose the parts of Step-E+ by what served on CIFAR-100N, where pictures are augmented."""
    prior = "uniform" if request.uniform_classes else "none"
    return {"average": 0.85, "refine": 0.5, "cutmix": WINDOWS, "prior": prior, "score": "guess"}


def by_preset(preset: str | None, method: str | None, probe: str | None) -> tuple[str, str | None]:
    """Return the method and the probe that a preset stands for; others beside it are refused."""
    if preset is None:
        return (METHOD if method is None else method), probe
    if preset != PAPER:
        raise InputError(f"preset is {preset!r}; there is one: paper")
    if method not in (None, PAPERS_METHOD) or probe not in (None, "in-sample"):
        raise InputError("preset paper is method step-e with probe in-sample; leave method and probe away, or preset")
    return PAPERS_METHOD, "in-sample"


def choose_methods(method: str, source: Source, compare: bool | None) -> tuple[str, ...]:
    """Choose what to train: the methods asked for, by names with commas between, then those to compare with."""
    names = [METHOD, *EVERY_METHOD] if method == "all" else method.split(",")
    has_clean_labels = source.clean_labels is not None
    if method == "all" and not has_clean_labels:
        names = [name for name in names if method_class(name).trains_on == "given"]
    for name in names:
        if method_class(name).trains_on == "clean" and not has_clean_labels:
            raise InputError(f"method {name!r} trains on clean labels, which {source.name} does not have")
    if compare or (compare is None and source.bundled):
        names += [name for name in SIDE_BY_SIDE if has_clean_labels or method_class(name).trains_on == "given"]
    return tuple(dict.fromkeys(names))


def settle_training(options: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """Settle what networks leave to the data, and what a preset stands for."""
    method, probe = by_preset(options["preset"], options["method"], options["probe"])
    epochs = options["epochs"]
    return {
        "method": method,
        "probe": probe or source.default_probe,
        "epochs": tuning_for(source, options["model"]).epochs if epochs is None else epochs,
    }


def check_request(request: Request, source: Source, methods: Sequence[str], say: Callable[[str], None]) -> Request:
    """Refuse what a method would silently ignore, or refuse itself, before any is trained."""
    if request.model is not None:
        check_model(request.model, source.kind)
    if AUDIT not in request.methods:
        check_options(request, rho_max=request.rho_max, warmup=request.warmup, min_keep=request.min_keep or None)
    check_strong(request.strong, source)
    if request.every_method:
        request = without_refused(request, source, say)
    for name in methods:
        if name in request.methods:
            checked_method(name, request, source)
    return request


def check_options(request: Request, **given: Any) -> None:
    """Refuse an option that the main method would silently ignore."""
    main = request.methods[0]
    ignored = [name for name, value in given.items() if value is not None and name not in method_options(request, main)]
    if ignored and len(request.methods) == 1:
        raise InputError(f"method {main!r} has no {' or '.join(ignored)}; leave it out, or choose another method")


def check_strong(share: float, source: Source) -> None:
    """Refuse strong augmentation of what is no picture."""
    if share and source.mean is None:
        raise InputError(
            "strong is for pictures, and nothing is trained on pictures here: leave it out (digits are learned as rows "
            "of pixels; without a GPU, a pretrained network is not trained itself)"
        )


def without_refused(request: Request, source: Source, say: Callable[[str], None]) -> Request:
    """Leave out the methods that cannot be compared on this data; the first, which is the run, has to be able to."""
    first, *others = request.methods
    able = [first]
    for name in others:
        try:
            checked_method(name, request, source)
        except InputError as error:
            say(f"without {name}: {error}")
        else:
            able.append(name)
    return replace(request, methods=tuple(able))


def checked_method(name: str, request: Request, source: Source) -> tuple[Method, Task]:
    """Make a method and what it would have to do; what it would refuse is refused."""
    method = make_method(name, **method_options(request, name))
    if method.mixes_inputs and not request.blends:
        raise InputError(
            f"method {name!r} trains on blends of two inputs, and texts and categories cannot be blended: choose "
            "another method"
        )
    groups, trusted = (None if found is None else as_tensor(found) for found in (source.groups, source.trusted))
    task = Task(
        labels=as_tensor(source.labels),
        classes=source.classes,
        epochs=request.epochs,
        seed=request.seed,
        criterion=cross_entropy(source.classes),
        noise_rate=known_rate(request, source),
        groups=groups,
        trusted=trusted,
        probe=request.probe if method.cross_fits else "in-sample",
    )
    if name not in RECIPES:  # these check what they are handed by the trainings that come first
        method.start(task, Ledger(task.n))
    return method, task


def known_rate(request: Request, source: Source) -> float | None:
    """Return the share of wrong labels, where somebody knows it."""
    return source.noise_rate if request.noise_rate is None else request.noise_rate
