"""``stepe clean``: from labels that cannot be trusted to a run folder with a model, ranked issues and a report."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy.typing as npt

from stepe.app.decided import Review, stated
from stepe.app.networks import preset_for
from stepe.app.request import (
    asked_methods,
    by_preset,
    check_methods,
    check_options,
    check_strong,
    choose_methods,
    column_names,
    tracked,
    without_refused,
)
from stepe.app.run import Run
from stepe.app.work import Follow, carry_out, resumable
from stepe.data import arrays
from stepe.data.collect import resolved
from stepe.data.noise import Noise
from stepe.data.source import BUNDLED_PREFIX, Source, open_own, open_source
from stepe.errors import RunError
from stepe.models.encoders import encoder_fitter
from stepe.models.pretrained import check_model
from stepe.options.layout import HOLD_OUT, Layout
from stepe.run.lock import locked, locked_new
from stepe.run.record import Auto, Config, Request
from stepe.training.building import find_device

if TYPE_CHECKING:
    import pandas as pd


DEFAULT_NOISE = "symmetric:0.4"


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
    method, probe = by_preset(preset, method, probe)
    folder = None if data_dir is None else Path(data_dir)
    layout = Layout(
        label=label,
        text=text,
        image=image,
        features=column_names(features),
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
    gpu, fit = found_device.type == "cuda", encoder_fitter(model, found_device)
    if in_memory:
        source = open_own(data, layout, say, gpu=gpu, fit=fit)
    else:
        source = open_source(str(data), say, folder, layout, gpu=gpu, fit=fit)
    if source.image_shape is not None and source.kind == "images":
        layout = replace(layout, image_size=source.image_shape[0])
    if model is not None:
        check_model(model, source.kind)
    if source.bundled:
        noise = noise or DEFAULT_NOISE
    elif noise == "none":
        noise = None  # nothing to plant; whether the labels are right is not known
    begun = Path(out) if resume and out is not None else None
    review = None if decisions is None else review_of(decisions, begun)
    source = prepare(source, noise, seed, review, say)
    request = Request(
        name=source.name,
        data=source.reference,
        methods=choose_methods(method, source, compare),
        noise=noise,
        epochs=preset_for(source, model).epochs if epochs is None else epochs,
        warmup=warmup,
        rho_max=rho_max,
        noise_rate=noise_rate,
        min_keep=min_keep,
        balanced=balanced,
        strong=strong,
        seed=seed,
        device=device,
        data_dir=None if folder is None else str(folder.resolve()),
        probe=probe or source.default_probe,
        kind=source.kind,
        is_experiment=source.is_experiment,
        uniform_classes=source.uniform_classes,
        duplicates=source.duplicates,
        decisions=None if review is None else str(review.run.path.resolve()),
        decisions_until=0 if review is None else review.until,
        track=tracked(track),
        blends=source.can_be_blended,
        every_method=asked_methods(method) == ["all"],
        preset=preset,
        augments=source.mean is not None,
        **{option.name: getattr(layout, option.name) for option in fields(Layout)},
    )
    check_options(request, rho_max=rho_max, warmup=warmup, min_keep=min_keep or None)
    check_strong(strong, source)
    if request.every_method:
        request = without_refused(request, source, say)
    check_methods(request, source)
    name = default_name(source.name if in_memory else str(data))
    with locked_new(name) if out is None else locked(Path(out)) as path, resumable(path):
        return carry_out(request, source, path, resume=resume, say=say, follow=follow, review=review)


def default_name(data: str) -> str:
    """What a run of this data is called if nobody says: its folder is ``runs/<name>-<n>``."""
    name = arrays.name_of(data) if arrays.is_array_file(data) else Path(data.removeprefix(BUNDLED_PREFIX)).stem
    return (name.strip(".") or Path(data).resolve().name or "data").replace(":", "-")


def prepare(source: Source, noise: str | None, seed: int, review: Review | None, say: Callable[[str], None]) -> Source:
    """The source with the noise that was asked for, and with what people decided."""
    if noise is not None:
        source = source.planted(Noise.parse(noise), seed)
    if review is None:
        return source
    say(stated(review.decisions))
    return review.carry_out(source)


def review_of(decisions: Run | str | Path, begun: Path | None) -> Review:
    """What was decided by now; for a run that is resumed, what had been decided when it began."""
    run = decisions if isinstance(decisions, Run) else Run(decisions)
    if begun is None or not (begun / "config.json").exists():
        return Review.of(run)
    saved = Config.read(begun).request or Request()
    if saved.decisions != str(run.path.resolve()):
        raise RunError(
            f"{begun} was started with the decisions of {saved.decisions}, not of {run.path}; resume it as it was"
        )
    return Review.of(run, saved.decisions_until)
