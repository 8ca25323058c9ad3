"""``stepe clean``: from labels that cannot be trusted to a run folder with a model, ranked issues and a report."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from torch import nn

from stepe.data.augment import CropFlip, Normalised
from stepe.data.noise import Noise
from stepe.data.source import BUNDLED_PREFIX, Source, from_arrays, open_source
from stepe.errors import InputError, RunError
from stepe.files import sweep
from stepe.fit import fit
from stepe.ledger import Ledger
from stepe.methods import METHODS, Task, make_method, method_class
from stepe.models.mlp import MLP
from stepe.models.resnet import resnet18
from stepe.randomness import Stream, seeded
from stepe.run import About, Run, RunFolder, new_run_path, read_config
from stepe.schedule import check_epochs
from stepe.training import Observer, cross_entropy, find_device

DEFAULT_NOISE = "symmetric:0.4"
SIDE_BY_SIDE = ("plain", "step-e", "oracle")
SMALL_MODEL = 1_000_000


@dataclass(frozen=True)
class Preset:
    """How a network is trained; the defaults were chosen on a hold-out (``benchmarks/digits_network.py``)."""

    hidden: tuple[int, ...] = (512, 512)
    """of the MLP; pictures in colour have a ResNet-18"""
    dropout: float = 0.7
    learning_rate: float = 0.1
    batch_size: int = 128
    weight_decay: float = 5e-4
    epochs: int = 60


@dataclass(frozen=True)
class Request:
    """What was asked for; kept in ``config.json``, and all that is needed to resume."""

    name: str
    """what to call the data"""
    data: str | None
    """``None``: arrays, which only their owner can bring again"""
    methods: tuple[str, ...]
    """the first is the run; the others are trained for comparison"""
    noise: str | None
    epochs: int
    warmup: int | None
    rho_max: float | None
    noise_rate: float | None
    min_keep: float
    seed: int
    device: str
    data_dir: str | None = None

    def options(self, method: str) -> dict[str, Any]:
        """The options a method understands."""
        wanted = {"rho_max": self.rho_max, "warmup": self.warmup, "min_keep": self.min_keep}
        return {name: value for name, value in wanted.items() if name in method_class(method).options()}


Follow = Callable[[str, int, int], Observer]
"""(method, its position, how many there are) -> something that shows the progress"""


def clean(
    data: str | Path | tuple[npt.ArrayLike, npt.ArrayLike],
    *,
    method: str | Sequence[str] = "step-e",
    noise: str | None = None,
    epochs: int | None = None,
    warmup: int | None = None,
    rho_max: float | None = None,
    noise_rate: float | None = None,
    min_keep: float = 0.0,
    seed: int = 0,
    out: str | Path | None = None,
    device: str = "auto",
    data_dir: str | Path | None = None,
    compare: bool | None = None,
    resume: bool = False,
    say: Callable[[str], None] = lambda message: None,
    follow: Follow | None = None,
) -> Run:
    """Train on labels that cannot be trusted; find those that are probably wrong.

    Args:
        data: ``"digits"``, ``"cifar100n"`` or ``"cifar10n:worst"`` and the like, the path of an ``.npz`` file, or a
            pair (features, labels).
        method: one method, several (the first is the run, the others are compared with it), or ``"all"``.
        noise: noise to plant for an experiment, as in ``"symmetric:0.4"``, or ``"none"``. Bundled data is clean, so
            it gets 40% symmetric noise unless told otherwise; people's own data is left as it is.
        epochs: length of the run.
        warmup: epochs before anything is dropped; by default a sixth.
        rho_max: largest share ever dropped; follows from the noise rate where that is known.
        noise_rate: known share of wrong labels.
        min_keep: share of every class that is never dropped.
        seed: everything random follows from it.
        out: the run folder; by default ``runs/<data>-<n>``.
        data_dir: where CIFAR-N lies; else it is looked for in ``$STEPE_DATA`` and a cache folder, else downloaded.
        compare: whether plain training and, where clean labels are known, the oracle are trained too.
        resume: continue what is in ``out``, called with the same arguments.
        say: is told what a person should know.
        follow: makes an observer that shows the progress of a run.

    Returns:
        The finished run; its folder holds everything.
    """
    find_device(device)
    folder = None if data_dir is None else Path(data_dir)
    source = from_arrays(*data) if isinstance(data, tuple) else open_source(str(data), say, folder)
    if source.bundled:
        noise = noise or DEFAULT_NOISE
    elif noise == "none":
        noise = None  # nothing to plant; whether the labels are right is not known
    source = _prepare(source, noise, seed)
    request = Request(
        name=source.name,
        data=source.reference,
        methods=_choose_methods(method, source, compare),
        noise=noise,
        epochs=Preset().epochs if epochs is None else epochs,
        warmup=warmup,
        rho_max=rho_max,
        noise_rate=noise_rate,
        min_keep=min_keep,
        seed=seed,
        device=device,
        data_dir=None if folder is None else str(folder.resolve()),
    )
    _check_options(request, rho_max=rho_max, warmup=warmup, min_keep=min_keep or None)
    _check_methods(request, source)
    out = Path(out) if out is not None else default_out("arrays" if isinstance(data, tuple) else str(data))
    return _carry_out(request, source, out, resume=resume, follow=follow)


def resume(
    path: str | Path, *, say: Callable[[str], None] = lambda message: None, follow: Follow | None = None, **changed: Any
) -> Run:
    """Continue an interrupted run, to the same result as if it had never been interrupted.

    ``changed`` are arguments the caller insists on; one that differs from the run's own is an error.
    """
    path = Path(path)
    saved = read_config(path)["request"]
    if not saved or saved.get("data") is None:
        raise RunError(f"{path} was made from arrays; resume it with stepe.clean((features, labels), ..., resume=True)")
    request = Request(**{**saved, "methods": tuple(saved["methods"])})
    if "method" in changed:
        asked = tuple(name.strip() for name in changed.pop("method").split(","))
        if asked != request.methods[: len(asked)] and not (asked == ("all",) and set(request.methods) == set(METHODS)):
            changed["methods"] = asked
    if "device" in changed and find_device(changed["device"]) == find_device(request.device):
        del changed["device"]
    different = [f"{key} was {saved[key]!r}, not {value!r}" for key, value in changed.items() if saved[key] != value]
    if different:
        raise RunError(
            f"{path} was started with another configuration: {'; '.join(different)}. "
            "Resume it as it was, or start a new run in another folder"
        )
    folder = None if request.data_dir is None else Path(request.data_dir)
    source = _prepare(open_source(saved["data"], say, folder), request.noise, request.seed)
    return _carry_out(request, source, path, resume=True, follow=follow)


def default_out(data: str) -> Path:
    """Where a run of this data goes if nobody says: ``runs/<data>-<n>``."""
    return new_run_path(Path(data.removeprefix(BUNDLED_PREFIX)).stem.replace(":", "-"))


def _prepare(source: Source, noise: str | None, seed: int) -> Source:
    return source if noise is None else source.planted(Noise.parse(noise), seed)


def _choose_methods(method: str | Sequence[str], source: Source, compare: bool | None) -> tuple[str, ...]:
    asked = method.split(",") if isinstance(method, str) else list(method)
    names = list(METHODS) if asked == ["all"] else [name.strip() for name in asked]
    has_clean_labels = source.clean_labels is not None
    if asked == ["all"] and not has_clean_labels:
        names = [name for name in names if method_class(name).trains_on == "given"]
    for name in names:
        if method_class(name).trains_on == "clean" and not has_clean_labels:
            raise InputError(f"method {name!r} trains on clean labels, which {source.name} does not have")
    if compare or (compare is None and source.bundled):
        names += [name for name in SIDE_BY_SIDE if has_clean_labels or method_class(name).trains_on == "given"]
    return tuple(dict.fromkeys(names))


def _check_options(request: Request, **given: Any) -> None:
    """An option that the main method would silently ignore is a mistake."""
    main = request.methods[0]
    ignored = [name for name, value in given.items() if value is not None and name not in request.options(main)]
    if ignored and len(request.methods) == 1:
        raise InputError(f"method {main!r} has no {' or '.join(ignored)}; leave it out, or choose another method")


def _check_methods(request: Request, source: Source) -> None:
    """What any of the methods would refuse is refused before the first of them is trained."""
    check_epochs(request.epochs, warmup=0)
    task = Task(
        labels=source.labels,
        classes=source.classes,
        epochs=request.epochs,
        seed=request.seed,
        criterion=cross_entropy(source.classes),
        noise_rate=_known_rate(request, source),
    )
    for name in request.methods:
        make_method(name, **request.options(name)).start(task, Ledger(task.n))


def _known_rate(request: Request, source: Source) -> float | None:
    return source.noise_rate if request.noise_rate is None else request.noise_rate


def _carry_out(request: Request, source: Source, out: Path, *, resume: bool, follow: Follow | None) -> Run:
    for position, method in enumerate(request.methods):
        path = out if position == 0 else out / "compare" / method
        if resume and (path / "summary.json").exists():
            sweep(path)
            continue
        observers = () if follow is None else (follow(method, position, len(request.methods)),)
        about = About(
            request=json.loads(json.dumps(asdict(request))) if position == 0 else {},
            class_names=source.class_names,
            names=source.names,
            held_out_names=source.test_names,
            pictures=None if source.image_shape is None else source.pictures,
        )
        _train(request, source, method, RunFolder(path, about), resume=resume, observers=observers)
    run = Run(out)
    run.report()
    return run


def _train(
    request: Request, source: Source, method: str, folder: RunFolder, *, resume: bool, observers: tuple[Observer, ...]
) -> None:
    preset = Preset()
    x, labels = source.x, source.labels
    if method_class(method).trains_on == "clean":
        assert source.clean_x is not None
        assert source.clean_labels is not None
        x, labels = source.clean_x, source.clean_labels
    device = find_device(request.device)
    with seeded(Stream.named(request.seed, "init")):
        model = _network(source, preset, device)
    with _threads_for(model):
        fit(
            model,
            x,
            labels,
            method=method,
            epochs=request.epochs,
            noise_rate=_known_rate(request, source),
            test=(source.test_x, source.test_labels),
            truth=source.truth,
            batch_size=preset.batch_size,
            learning_rate=preset.learning_rate,
            weight_decay=preset.weight_decay,
            device=device,
            **_image_options(source, device),
            seed=request.seed,
            run=folder,
            resume=resume,
            observers=observers,
            **request.options(method),
        )


def _network(source: Source, preset: Preset, device: torch.device) -> nn.Module:
    if source.mean is None:
        return MLP(source.x[0].numel(), source.classes, preset.hidden, preset.dropout)
    # The CIFAR stem is far more accurate on small pictures, and far too slow without a GPU.
    return resnet18(source.classes, stem="cifar" if device.type == "cuda" else "imagenet")


def _image_options(source: Source, device: torch.device) -> dict[str, Any]:
    if source.mean is None or source.std is None:
        return {}
    gpu = device.type == "cuda"
    return {
        "forward": Normalised.by(source.mean, source.std, device),
        "augment": CropFlip(),
        "amp": "bf16" if gpu else None,
        "engine": "resident" if gpu else "eager",
    }


@contextmanager
def _threads_for(model: nn.Module) -> Iterator[None]:
    """One thread for small networks: on a busy machine more of them mostly wait for each other, and results then
    do not depend on how many cores there are.
    """
    before = torch.get_num_threads()
    if sum(parameter.numel() for parameter in model.parameters()) <= SMALL_MODEL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
