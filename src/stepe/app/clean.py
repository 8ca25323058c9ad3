"""``stepe clean``: from labels that cannot be trusted to a run folder with a model, ranked issues and a report."""

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy.typing as npt
import torch
from torch import nn

from stepe.app.decided import Review, stated
from stepe.app.run import About, Run, RunFolder, new_run_path, read_config
from stepe.data import arrays
from stepe.data.encode import (
    FeatureEncoder,
    FrozenEncoder,
    ImageEncoder,
    Kind,
    TableEncoder,
    TextEncoder,
    write_encoder,
)
from stepe.data.images import SMALL
from stepe.data.noise import Noise
from stepe.data.own import Layout, resolved
from stepe.data.source import BUNDLED_PREFIX, Source, open_own, open_source
from stepe.data.split import HOLD_OUT
from stepe.engine.stack import SMALL_MODEL
from stepe.errors import InputError, RunError
from stepe.files import sweep
from stepe.loop.ledger import Ledger
from stepe.loop.randomness import Stream, seeded
from stepe.loop.schedule import check_epochs
from stepe.methods import EVERY_METHOD, RECIPES, Task, make_method, method_class
from stepe.models.build import build
from stepe.models.pair import Pair
from stepe.models.pretrained import check_model
from stepe.samples.augmentation import CropFlip, Normalised
from stepe.samples.strong import Strong
from stepe.training.building import Observer, balanced_weight, cross_entropy, find_device
from stepe.training.fit import fit
from stepe.training.prune import prune

if TYPE_CHECKING:
    import pandas as pd

Auto = Literal["auto"]
PREPROCESSING = "preprocessing.json"
DEFAULT_NOISE = "symmetric:0.4"
METHOD = "step-e-plus"
PAPER, PAPERS_METHOD = "paper", "step-e"
SIDE_BY_SIDE = ("plain", METHOD, "oracle")
WINDOWS = 0.5
"""share of the pictures that Step-E+ cuts a window into, by what served on CIFAR (``docs/step-e-plus.md``)"""
SMALL_DATA, LARGE_DATA = 5_000, 200_000
FEW_SAMPLES = 500
PROBE_SHARE, PROBERS_SHARE = 1.4, 2.0
"""an epoch with its probe, and one with probers that train beside it, in units of training alone"""


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
    optimizer: Literal["sgd", "adamw"] = "sgd"

    def optimizer_options(self, device: torch.device) -> dict[str, Any]:
        """For :func:`stepe.fit`."""
        if self.optimizer == "sgd":
            return {"learning_rate": self.learning_rate, "weight_decay": self.weight_decay}
        # Fused, an update of a large embedding takes a fraction of the time.
        fused = device.type in ("cpu", "cuda")
        made = partial(torch.optim.AdamW, lr=self.learning_rate, weight_decay=self.weight_decay, fused=fused)
        return {"optimizer": made}


def training_for(kind: Kind, n: int, *, pretrained: bool = False) -> Preset:
    """How a network for a kind of data is trained: the more samples, the fewer epochs.

    >>> [training_for("features", n).epochs for n in (1_000, 30_000, 1_000_000)]
    [60, 41, 20]
    """
    growth = math.log(max(1, n / SMALL_DATA)) / math.log(LARGE_DATA / SMALL_DATA)
    epochs = round(60 - 40 * min(1.0, growth))
    preset = Preset(epochs=epochs, batch_size=64 if n < FEW_SAMPLES else 128)
    if pretrained:
        rate = 2e-5 if kind == "text" else 1e-4
        return replace(preset, optimizer="adamw", learning_rate=rate, weight_decay=0.01, batch_size=32, epochs=10)
    if kind == "text":
        text = replace(preset, hidden=(256,), dropout=0.5, optimizer="adamw", learning_rate=5e-3, weight_decay=0.01)
        return replace(text, epochs=epochs // 2)
    if kind == "table":
        return replace(preset, hidden=(256, 256), dropout=0.3)
    # Standardised features are far larger than digits' pixels, and unstable at their rate.
    return replace(preset, learning_rate=0.05) if kind == "features" else preset


@dataclass(frozen=True, kw_only=True)
class Request(Layout):
    """What was asked for, the data's layout included; kept in ``config.json``, and all that is needed to resume."""

    name: str
    """what to call the data"""
    data: str | None
    """``None``: arrays or a table in memory, which only their owner can bring again"""
    methods: tuple[str, ...]
    """the first is the run; the others are trained for comparison"""
    noise: str | None
    epochs: int
    warmup: int | Auto | None
    rho_max: float | Auto | None
    noise_rate: float | None
    min_keep: float
    seed: int
    device: str
    data_dir: str | None = None
    probe: str = "in-sample"
    kind: Kind = "features"
    """of data: images, text, table or features"""
    held_out_noisy: bool = True
    """whether the held-out labels, too, can be wrong"""
    duplicates: int = 0
    """samples whose very input also stands under another label; ``duplicates.csv`` lists them"""
    decisions: str | None = None
    """an earlier run, on whose labels people have decided"""
    decisions_until: int = 0
    """the last entry of its log that counts"""
    balanced: bool = False
    """whether every class counts alike in training, however rare"""
    strong: float = 0.0
    """share of the pictures that are augmented strongly, drawn anew each epoch"""
    track: tuple[str, ...] = ()
    """where the history goes besides the run folder"""
    blends: bool = True
    """whether half of one input and half of another are an input"""
    every_method: bool = False
    """whether all methods were asked for that the data allows"""
    preset: str | None = None
    """``paper``: exactly what the paper does"""
    augments: bool = False
    """whether inputs are pictures that are drawn anew each epoch"""

    @classmethod
    def read(cls, saved: dict[str, Any]) -> "Request":
        """From its JSON."""
        lists = {name: tuple(value) for name, value in saved.items() if isinstance(value, list)}
        return cls(**(saved | lists))

    def options(self, method: str) -> dict[str, Any]:
        """The options a method understands."""
        wanted: dict[str, Any] = {"rho_max": self.rho_max, "warmup": self.warmup, "min_keep": self.min_keep}
        if self.preset == PAPER and method == PAPERS_METHOD:
            wanted["score"] = "loss"
        if method == METHOD:
            wanted |= self._parts()
        if not self.blends:
            wanted["mixup"] = 0
        return {name: value for name, value in wanted.items() if name in method_class(method).options()}

    def _parts(self) -> dict[str, Any]:
        """Which parts of Step-E+ serve."""
        if self.augments:
            # By what served on CIFAR-100N (docs/step-e-plus.md), ranking by the guess included. All of CIFAR's classes
            # have equally many pictures, which is public.
            prior = "none" if self.held_out_noisy else "uniform"
            return {"average": 0.85, "refine": 0.5, "cutmix": WINDOWS, "prior": prior, "score": "guess"}
        # Where nothing is augmented, much dropout makes our networks slow learners; slowed down further, they underfit.
        return {"average": 0, "refine": 0, "mixup": 0} if self.probe == "in-sample" else {}


Follow = Callable[[str, int, int], Observer]
"""(method, its position, how many there are) -> something that shows the progress"""


def clean(
    data: "str | Path | tuple[npt.ArrayLike, npt.ArrayLike] | pd.DataFrame",
    *,
    label: str | None = None,
    text: str | None = None,
    image: str | None = None,
    features: str | Sequence[str] | None = None,
    id: str | None = None,
    trusted: str | None = None,
    group: str | None = None,
    split_by: str | None = None,
    holdout: float = HOLD_OUT,
    test: str | Path | None = None,
    encoding: str = "utf-8",
    image_size: int | None = None,
    model: str | None = None,
    method: str | Sequence[str] | None = None,
    preset: str | None = None,
    noise: str | None = None,
    epochs: int | None = None,
    warmup: int | Auto | None = None,
    rho_max: float | Auto | None = None,
    probe: str | None = None,
    noise_rate: float | None = None,
    min_keep: float = 0.0,
    balanced: bool = False,
    strong: float = 0.0,
    seed: int = 0,
    out: str | Path | None = None,
    device: str = "auto",
    data_dir: str | Path | None = None,
    compare: bool | None = None,
    decisions: "Run | str | Path | None" = None,
    track: str | Sequence[str] = (),
    resume: bool = False,
    say: Callable[[str], None] = lambda message: None,
    follow: Follow | None = None,
) -> Run:
    """Train on labels that cannot be trusted; find those that are probably wrong.

    Args:
        data: a folder with a subfolder of pictures per class; a CSV, TSV, JSON-lines or Parquet file; an ``.npz`` file
            or a pair ``"x.npy,y.npy"``; a folder that Hugging Face's ``datasets`` saved, or ``"hf:NAME"``; a DataFrame;
            a pair (features, labels); or ``"digits"``, ``"cifar100n"``, ``"cifar10n:worst"`` and the like.
        label: column of a table that holds the labels; rows where it is empty are predicted.
        text: column to learn from, if it is text.
        image: column to learn from, if it holds paths of pictures, below the folder of the table.
        features: columns to learn from, if they are numbers: names or patterns. With none of the three, all columns.
        id: column that names the rows.
        trusted: column that says (true, 1, yes) which labels were checked: these are never dropped.
        group: column whose values ``min_keep`` protects, instead of the classes.
        split_by: column whose values are held out as a whole or not at all (a patient, a user).
        holdout: share of each class that is held out, for the accuracy; 0 for none.
        test: data of the same form to hold out instead.
        encoding: of a text file.
        image_size: side of the square to which pictures are resized.
        model: ``timm:NAME`` for pictures, ``hf:NAME`` for texts; by default a small network of our own.
        method: one method, several (the first is the run, the others are compared with it), or ``"all"``; by default
            ``step-e-plus``.
        preset: ``"paper"`` for exactly what the paper does: ``step-e``, judged by the losses of the model itself.
        noise: noise to plant for an experiment, as in ``"symmetric:0.4"``, or ``"none"``. Bundled data is clean, so
            it gets 40% symmetric noise unless told otherwise; people's own data is left as it is.
        epochs: length of the run; by default by the size of the data.
        warmup: epochs before anything is dropped; by default a sixth. ``"auto"``: until labels are learned by heart.
        rho_max: largest share ever dropped; follows from the noise rate where that is known, and is otherwise
            (``"auto"``) estimated.
        probe: who judges the samples: ``"in-sample"``, ``"cross:K"``, ``"cross:KxR"`` or ``"auto"``, see
            :func:`stepe.fit`. By default ``auto``; in-sample for bundled data.
        noise_rate: known share of wrong labels.
        min_keep: share of every class, or of every ``group``, that is never dropped.
        balanced: whether every class counts alike in training, however rare; what is dropped does not depend on it.
        strong: share of the pictures that are, each epoch anew, also turned, moved, recoloured and cut into
            (:class:`stepe.samples.strong.Strong`).
        seed: everything random follows from it.
        out: the run folder; by default ``runs/<data>-<n>``.
        data_dir: where CIFAR-N lies; else it is looked for in ``$STEPE_DATA`` and a cache folder, else downloaded.
        compare: whether plain training and, where clean labels are known, the oracle are trained too.
        decisions: an earlier run of this data that people have reviewed: their labels are trained on, and trusted.
        track: where to send the history: ``"tensorboard"`` (into the run folder) or ``"tensorboard:DIR"``,
            ``"wandb:PROJECT"``, ``"mlflow:EXPERIMENT"``; one or several.
        resume: continue what is in ``out``, called with the same arguments.
        say: is told what a person should know.
        follow: makes an observer that shows the progress of a run.

    Returns:
        The finished run; its folder holds everything.
    """
    found_device = find_device(device)
    method, probe = _by_preset(preset, method, probe)
    folder = None if data_dir is None else Path(data_dir)
    layout = Layout(
        label=label,
        text=text,
        image=image,
        features=_names(features),
        id=id,
        trusted=trusted,
        group=group,
        split_by=split_by,
        holdout=holdout,
        test=None if test is None else resolved(str(test)),
        encoding=encoding,
        image_size=image_size,
        model=model,
    )
    in_memory = not isinstance(data, str | Path)
    if in_memory:
        source = open_own(data, layout, found_device, say)
    else:
        source = open_source(str(data), say, folder, layout, found_device)
    if source.image_shape is not None and source.kind == "images":
        layout = replace(layout, image_size=source.image_shape[0])
    if model is not None:
        check_model(model, source.kind)
    if source.bundled:
        noise = noise or DEFAULT_NOISE
    elif noise == "none":
        noise = None  # nothing to plant; whether the labels are right is not known
    out = Path(out) if out is not None else default_out(source.name if in_memory else str(data))
    review = None if decisions is None else _review(decisions, out, resume=resume)
    source = _prepare(source, noise, seed, review, say)
    request = Request(
        name=source.name,
        data=source.reference,
        methods=_choose_methods(method, source, compare),
        noise=noise,
        epochs=_preset(source, model).epochs if epochs is None else epochs,
        warmup=warmup,
        rho_max=rho_max,
        noise_rate=noise_rate,
        min_keep=min_keep,
        balanced=balanced,
        strong=strong,
        seed=seed,
        device=device,
        data_dir=None if folder is None else str(folder.resolve()),
        probe=probe or ("in-sample" if _is_benchmark(source) else "auto"),
        kind=source.kind,
        held_out_noisy=source.held_out_noisy,
        duplicates=source.duplicates,
        decisions=None if review is None else str(review.run.path.resolve()),
        decisions_until=0 if review is None else review.until,
        track=_tracked(track),
        blends=source.can_be_blended,
        every_method=_asked(method) == ["all"],
        preset=preset,
        augments=source.mean is not None,
        **{option.name: getattr(layout, option.name) for option in fields(Layout)},
    )
    _check_options(request, rho_max=rho_max, warmup=warmup, min_keep=min_keep or None)
    _check_strong(strong, source)
    if request.every_method:
        request = _without_refused(request, source, say)
    _check_methods(request, source)
    return _carry_out(request, source, out, resume=resume, say=say, follow=follow, review=review)


def _by_preset(
    preset: str | None, method: str | Sequence[str] | None, probe: str | None
) -> tuple[str | Sequence[str], str | None]:
    """What a preset stands for; whoever asks for something else beside it is refused."""
    if preset is None:
        return (METHOD if method is None else method), probe
    if preset != PAPER:
        raise InputError(f"preset is {preset!r}; there is one: paper")
    if method not in (None, PAPERS_METHOD) or probe not in (None, "in-sample"):
        raise InputError("preset paper is method step-e with probe in-sample; leave method and probe away, or preset")
    return PAPERS_METHOD, "in-sample"


def _asked(method: str | Sequence[str]) -> list[str]:
    return [name.strip() for name in method.split(",")] if isinstance(method, str) else list(method)


def _names(features: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Columns, as a list or with commas between."""
    found = features.split(",") if isinstance(features, str) else list(features or ())
    return tuple(name.strip() for name in found) or None


def _tracked(track: str | Sequence[str]) -> tuple[str, ...]:
    """Trackers by name; a folder of events is the same from everywhere."""
    found = []
    for text in [track] if isinstance(track, str) else track:
        name, _, where = text.partition(":")
        found.append(f"{name}:{Path(where).resolve()}" if name == "tensorboard" and where else text)
    return tuple(found)


def resume(
    path: str | Path, *, say: Callable[[str], None] = lambda message: None, follow: Follow | None = None, **changed: Any
) -> Run:
    """Continue an interrupted run, to the same result as if it had never been interrupted.

    ``changed`` are arguments the caller insists on; one that differs from the run's own is an error.
    """
    path = Path(path)
    saved = read_config(path)["request"]
    if not saved or saved.get("data") is None:
        raise RunError(
            f"{path} was made from arrays; resume it with stepe.clean((features, labels), ..., resume=True), or with "
            "the table it was made from"
        )
    request = Request.read(saved)
    if "method" in changed:
        asked = tuple(name.strip() for name in changed.pop("method").split(","))
        if asked != request.methods[: len(asked)] and not (asked == ("all",) and request.every_method):
            changed["methods"] = asked
    if "features" in changed:
        changed["features"] = list(_names(changed["features"]) or ()) or None
    if "track" in changed:
        changed["track"] = list(_tracked(changed["track"]))
    if changed.get("test") is not None:
        changed["test"] = resolved(changed["test"])
    if changed.get("decisions") is not None:
        changed["decisions"] = str(Path(changed["decisions"]).resolve())
    if "device" in changed and find_device(changed["device"]) == find_device(request.device):
        del changed["device"]
    different = [
        f"{key} was {saved.get(key)!r}, not {value!r}" for key, value in changed.items() if saved.get(key) != value
    ]
    if different:
        raise RunError(
            f"{path} was started with another configuration: {'; '.join(different)}. "
            "Resume it as it was, or start a new run in another folder"
        )
    folder = None if request.data_dir is None else Path(request.data_dir)
    source = open_source(saved["data"], say, folder, request, find_device(request.device))
    review = None if request.decisions is None else _review(request.decisions, path, resume=True)
    source = _prepare(source, request.noise, request.seed, review, say)
    return _carry_out(request, source, path, resume=True, say=say, follow=follow, review=review)


def default_out(data: str) -> Path:
    """Where a run of this data goes if nobody says: ``runs/<data>-<n>``."""
    name = arrays.name_of(data) if arrays.is_array_file(data) else Path(data.removeprefix(BUNDLED_PREFIX)).stem
    return new_run_path((name.strip(".") or Path(data).resolve().name or "data").replace(":", "-"))


def _prepare(source: Source, noise: str | None, seed: int, review: Review | None, say: Callable[[str], None]) -> Source:
    if noise is not None:
        source = source.planted(Noise.parse(noise), seed)
    if review is None:
        return source
    say(stated(review.decisions))
    return review.carry_out(source)


def _review(decisions: Run | str | Path, out: Path, *, resume: bool) -> Review:
    """What was decided by now; by whoever resumes, what had been when the run began."""
    run = decisions if isinstance(decisions, Run) else Run(decisions)
    if not resume or not (out / "config.json").exists():
        return Review.of(run)
    begun = read_config(out)["request"]
    if begun.get("decisions") != str(run.path.resolve()):
        raise RunError(
            f"{out} was started with the decisions of {begun.get('decisions')}, not of {run.path}; resume it as it was"
        )
    return Review.of(run, begun["decisions_until"])


def _choose_methods(method: str | Sequence[str], source: Source, compare: bool | None) -> tuple[str, ...]:
    asked = _asked(method)
    names = [METHOD, *EVERY_METHOD] if asked == ["all"] else asked
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


def _check_strong(share: float, source: Source) -> None:
    Strong(share=share)  # refuses what is no share
    if share and source.mean is None:
        raise InputError(
            "strong is for pictures, and nothing is trained on pictures here: leave it out (digits are learned as rows "
            "of pixels; without a GPU, a pretrained network is not trained itself)"
        )


def _check_methods(request: Request, source: Source) -> None:
    """What any of the methods would refuse is refused before the first of them is trained."""
    check_epochs(request.epochs, warmup=0)
    for name in request.methods:
        _check_method(name, request, source)


def _without_refused(request: Request, source: Source, say: Callable[[str], None]) -> Request:
    """All methods but those that cannot be compared on this data; the first, which is the run, has to be able to."""
    first, *others = request.methods
    able = [first]
    for name in others:
        try:
            _check_method(name, request, source)
        except InputError as error:
            say(f"without {name}: {error}")
        else:
            able.append(name)
    return replace(request, methods=tuple(able))


def _check_method(name: str, request: Request, source: Source) -> None:
    method = make_method(name, **request.options(name))
    if method.mixes_inputs and not request.blends:
        raise InputError(
            f"method {name!r} trains on blends of two inputs, and texts and categories cannot be blended: choose "
            "another method"
        )
    if name in RECIPES:
        return  # it checks what it is handed by the trainings that come first
    task = Task(
        labels=source.labels,
        classes=source.classes,
        epochs=request.epochs,
        seed=request.seed,
        criterion=cross_entropy(source.classes),
        noise_rate=_known_rate(request, source),
        groups=source.groups,
        trusted=source.trusted,
    )
    method.start(task, Ledger(task.n))


def _known_rate(request: Request, source: Source) -> float | None:
    return source.noise_rate if request.noise_rate is None else request.noise_rate


def _is_benchmark(source: Source) -> bool:
    """Whether the noise is part of the data, so that its rate is known."""
    return not source.held_out_noisy


def _carry_out(
    request: Request,
    source: Source,
    out: Path,
    *,
    resume: bool,
    say: Callable[[str], None],
    follow: Follow | None,
    review: Review | None,
) -> Run:
    device = find_device(request.device)
    preset = _preset(source, request.model)
    description = describe_network(source, preset, device, request.model)
    preprocessing = {"kind": source.kind, "encoder": write_encoder(source.encoder), "model": description}
    # All of them now: what is missing for one is said before the first is trained.
    trackers = {method: _trackers(request, out, method) for method in request.methods}
    if isinstance(source.encoder, ImageEncoder) and device.type == "cpu":
        _say_how_long(request, source, preset, description, say)
    for position, method in enumerate(request.methods):
        path = out if position == 0 else out / "compare" / method
        if resume and (path / "summary.json").exists():
            sweep(path)
            continue
        observers = trackers[method] if follow is None else (*trackers[method], follow(method, position, len(trackers)))
        about = About(
            request=json.loads(json.dumps(asdict(request))) if position == 0 else {},
            class_names=source.class_names,
            names=source.names,
            held_out_names=source.test_names,
            exhibits=source.exhibits,
            pictured=source.image_shape is not None,
            unlabelled=source.unlabelled_x,
            unlabelled_names=source.unlabelled_names,
            files={PREPROCESSING: json.dumps(preprocessing), **source.files} if position == 0 else {},
        )
        folder = RunFolder(path, about)
        _train(request, source, method, preset, description, folder, resume=resume, observers=observers)
    run = Run(out)
    if review is not None:
        review.hand_on(run)
    run.report()
    return run


def _trackers(request: Request, out: Path, method: str) -> tuple[Observer, ...]:
    if not request.track:
        return ()
    from stepe.integrations.trackers import make_tracker

    return tuple(make_tracker(text, out, method) for text in request.track)


def _train(
    request: Request,
    source: Source,
    method: str,
    preset: Preset,
    description: dict[str, Any],
    folder: RunFolder,
    *,
    resume: bool,
    observers: tuple[Observer, ...],
) -> None:
    x, labels = source.x, source.labels
    if method_class(method).trains_on == "clean":
        assert source.clean_x is not None
        assert source.clean_labels is not None
        x, labels = source.clean_x, source.clean_labels
    device = find_device(request.device)

    def make_model(purpose: str = "init") -> nn.Module:
        with seeded(Stream.named(request.seed, purpose)):
            return build(description)

    model = make_model()
    if method_class(method).networks == 2:  # built anew: of a pretrained network, the head alone starts differently
        model = Pair(model, make_model("init of the second"))
    # A recipe trains several models, and makes them itself.
    train = partial(prune, make_model) if method in RECIPES else partial(fit, model, method=method)
    with threads_for(model):
        train(
            x,
            labels,
            epochs=request.epochs,
            noise_rate=_known_rate(request, source),
            groups=source.groups,
            trusted=source.trusted,
            weight=balanced_weight(labels) if request.balanced else None,
            probe=request.probe,
            test=(source.test_x, source.test_labels) if len(source.test_labels) else None,
            truth=source.truth,
            batch_size=preset.batch_size,
            **preset.optimizer_options(device),
            device=device,
            **_image_options(source, device, request.model, request.strong),
            seed=request.seed,
            run=folder,
            resume=resume,
            # Probers are saved too: hundreds of megabytes, for a large network.
            checkpoint_every=1 if _is_small(model) else 5,
            observers=observers,
            **request.options(method),
        )


def _preset(source: Source, model: str | None) -> Preset:
    if _is_benchmark(source):
        return Preset()
    if isinstance(source.encoder, FrozenEncoder):
        return training_for("features", len(source.labels))
    return training_for(source.kind, len(source.labels), pretrained=model is not None)


def describe_network(source: Source, preset: Preset, device: torch.device, model: str | None) -> dict[str, Any]:
    """The network for a kind of data, as :func:`stepe.models.build.build` makes it."""
    encoder, classes = source.encoder, source.classes
    if model is not None and not isinstance(encoder, FrozenEncoder):
        return {"name": "pretrained", "model": model, "classes": classes}
    if isinstance(encoder, TextEncoder):
        (hidden,) = preset.hidden
        vocabulary = encoder.vocabulary
        return {
            "name": "text",
            "vocabulary": vocabulary,
            "classes": classes,
            "hidden": hidden,
            "dropout": preset.dropout,
        }
    shape = {"classes": classes, "hidden": list(preset.hidden), "dropout": preset.dropout}
    if isinstance(encoder, TableEncoder):
        return {"name": "tabular", "numbers": encoder.numbers, "codes": encoder.codes, **shape}
    if isinstance(encoder, FeatureEncoder | FrozenEncoder):
        return {"name": "mlp", "inputs": source.x[0].numel(), **shape}
    # The CIFAR stem is far more accurate on small pictures, and far too slow without a GPU.
    small = device.type == "cuda" and source.x.shape[-1] <= SMALL
    return {"name": "resnet18", "classes": classes, "stem": "cifar" if small else "imagenet"}


def _say_how_long(
    request: Request, source: Source, preset: Preset, description: dict[str, Any], say: Callable[[str], None]
) -> None:
    """Time one step of a network that is thrown away, and say what all of them will take."""
    with seeded(Stream.named(request.seed, "init")):
        model = build(description, pretrained=False)
        batch = source.x[: preset.batch_size].float() / 255
        seconds = []
        for _ in range(2):  # the first one warms up
            started = time.perf_counter()
            model(batch).square().mean().backward()
            seconds.append(time.perf_counter() - started)
    samples = len(source.labels) * request.epochs * len(request.methods)
    share = PROBE_SHARE if request.probe == "in-sample" else PROBERS_SHARE
    minutes = min(seconds) / len(batch) * samples * share / 60
    if minutes >= 1:
        size = source.x.shape[-1]
        say(
            f"about {minutes:.0f} min on this CPU for {len(source.labels)} pictures of {size} x {size} and "
            f"{request.epochs} epochs; a GPU, or fewer --epochs, is faster"
        )


def _image_options(source: Source, device: torch.device, model: str | None, strong: float) -> dict[str, Any]:
    if source.mean is None or source.std is None:
        return {}
    gpu = device.type == "cuda"
    light = CropFlip(padding=max(1, source.x.shape[-1] // 8))
    return {
        "forward": Normalised.by(source.mean, source.std, device),
        "augment": Strong(light, strong) if strong else light,
        "amp": "bf16" if gpu else None,
        "engine": "resident" if gpu and model is None else "eager",
    }


@contextmanager
def threads_for(model: nn.Module) -> Iterator[None]:
    """One thread for small networks: on a busy machine more of them mostly wait for each other, and results then
    do not depend on how many cores there are.
    """
    before = torch.get_num_threads()
    if _is_small(model):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _is_small(model: nn.Module) -> bool:
    return sum(parameter.numel() for parameter in model.parameters()) <= SMALL_MODEL
