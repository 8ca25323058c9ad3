"""Networks for ``stepe clean``, once it is known what to do: each method is trained in a folder of its own."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from stepe.app.networks import Tuning, describe_network, image_options, is_small, say_how_long, threads_for, tuning_for
from stepe.app.request import known_rate, method_options
from stepe.data.encoders import ImageEncoder, write_encoder
from stepe.data.source import Source
from stepe.files import inside, sweep
from stepe.loop.randomness import Stream, seeded
from stepe.methods import Method, Pruned, make_method, method_class
from stepe.models.build import build
from stepe.models.pair import Pair
from stepe.run.record import PREPROCESSING, Request
from stepe.training.building import Observer, Result, balanced_weight, find_device
from stepe.training.fit import begin
from stepe.training.prune import prune
from stepe.training.recorder import Recorder, RunDetails


class Follower(Observer, Protocol):
    """Shows the progress of networks, and of audits."""

    def round_ended(self, number: int, most: int, rate: float) -> None:
        """Hear that a round of an audit is over: which, of how many at most, and how many labels seem wrong."""


Follow = Callable[[str, int, int], Follower]
"""(method, its position, how many there are) -> something that shows the progress"""


def train_methods(
    request: Request,
    options: dict[str, Any],
    source: Source,
    out: Path,
    methods: Sequence[str],
    *,
    resume: bool,
    say: Callable[[str], None],
    follow: Follow | None,
) -> None:
    """Train networks by some methods, each in a run folder of its own: the one that the run is named after in ``out``.

    ``out`` is locked by the caller; ``options`` are those of the command, to be written down.
    """
    device = find_device(request.device)
    tuning = tuning_for(source, request.model)
    description = describe_network(source, tuning, device, request.model)
    preprocessing = {"kind": source.kind, "encoder": write_encoder(source.encoder), "model": description}
    # All of them now: what is missing for one is said before the first is trained.
    trackers = {method: _trackers(request, out, method) for method in methods}
    if isinstance(source.encoder, ImageEncoder) and device.type == "cpu":
        say_how_long(request, source, tuning, description, say)
    for position, method in enumerate(methods):
        is_main = method == request.methods[0]
        path = out if is_main else inside(out, "compare", method)
        if resume and inside(path, "summary.json").exists():
            sweep(path)
            continue
        observers = trackers[method] if follow is None else (*trackers[method], follow(method, position, len(methods)))
        details = RunDetails(
            request=request if is_main else None,
            options=options if is_main else {},
            class_names=source.class_names,
            names=source.names,
            held_out_names=source.test_names,
            previews=source.previews,
            pictured=source.image_shape is not None,
            unlabelled=None if source.unlabelled_x is None else torch.from_numpy(source.unlabelled_x),
            unlabelled_names=source.unlabelled_names,
            files={PREPROCESSING: json.dumps(preprocessing), **source.files} if is_main else {},
        )
        recorder = Recorder(path, details, locked=True)
        _train(request, source, method, tuning, description, recorder, resume=resume, observers=observers)


def _trackers(request: Request, out: Path, method: str) -> tuple[Observer, ...]:
    if not request.track:
        return ()
    from stepe.training.trackers import make_tracker

    return tuple(make_tracker(text, out, method) for text in request.track)


def _train(
    request: Request,
    source: Source,
    method: str,
    tuning: Tuning,
    description: dict[str, Any],
    recorder: Recorder,
    *,
    resume: bool,
    observers: tuple[Observer, ...],
) -> None:
    x, labels = torch.from_numpy(source.x), torch.from_numpy(source.labels)
    if method_class(method).trains_on == "clean":
        assert source.clean_x is not None
        assert source.clean_labels is not None
        x, labels = torch.from_numpy(source.clean_x), torch.from_numpy(source.clean_labels)
    device = find_device(request.device)

    def make_model(purpose: str = "init") -> nn.Module:
        with seeded(Stream.named(request.seed, purpose)):
            return build(description)

    model = make_model()
    if method_class(method).networks == 2:  # built anew: of a pretrained network, the head alone starts differently
        model = Pair(model, make_model("init of the second"))
    options: dict[str, Any] = {
        "epochs": request.epochs,
        "noise_rate": known_rate(request, source),
        "weight": balanced_weight(labels) if request.balanced else None,
        "probe": request.probe,
        "batch_size": tuning.batch_size,
        **tuning.optimizer_options(device),
        "device": device,
        **image_options(source, device, request.model, request.strong),
        "seed": request.seed,
    }

    def judge(by: Method) -> Result:
        return begin(make_model(), x, labels, method=by, **options).finish()

    def train(by: Method) -> Result:
        return begin(
            model,
            x,
            labels,
            method=by,
            groups=source.groups,
            trusted=source.trusted,
            test=(torch.from_numpy(source.test_x), source.test_labels) if len(source.test_labels) else None,
            truth=source.truth,
            run=recorder,
            resume=resume,
            # Probers are saved too: hundreds of megabytes, for a large network.
            checkpoint_every=1 if is_small(model) else 5,
            observers=observers,
            **options,
        ).finish()

    made = make_method(method, **method_options(request, method))
    with threads_for(model):
        if isinstance(made, Pruned):
            prune(train, labels, method=made, seed=request.seed, judge=judge)
        else:
            train(made)
