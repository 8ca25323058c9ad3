"""``stepe clean --resume``: an interrupted run goes on to the result it would have had."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepe.app.clean import prepare, review_of
from stepe.app.request import column_names, tracked
from stepe.app.run import Run
from stepe.app.work import Follow, carry_out, resumable
from stepe.data.collect import resolved
from stepe.data.source import open_source
from stepe.errors import RunError
from stepe.models.encoders import encoder_fitter
from stepe.run.lock import locked
from stepe.run.paths import Trust, check_paths, local_paths
from stepe.run.record import Config, Request
from stepe.training.building import find_device


def resume(
    path: str | Path,
    *,
    trust_paths: Trust = False,
    say: Callable[[str], None] = lambda message: None,
    follow: Follow | None = None,
    **changed: Any,
) -> Run:
    """Continue an interrupted run, to the same result as if it had never been interrupted.

    ``changed`` are arguments the caller insists on; one that differs from the run's own is an error. A run that
    somebody else made reads and writes where its folder says only with ``trust_paths``.
    """
    path = Path(path)
    config = Config.read(path)
    request = config.request or Request()
    if request.data is None:
        raise RunError(
            f"{path} was made from arrays; resume it with stepe.clean((features, labels), ..., resume=True), or with "
            "the table it was made from"
        )
    config.check_resumable(path)
    check_paths(path, {name: paths for name, paths in _named(request).items() if name not in changed}, trust_paths)
    if "method" in changed:
        asked = tuple(name.strip() for name in changed.pop("method").split(","))
        if asked != request.methods[: len(asked)] and not (asked == ("all",) and request.every_method):
            changed["methods"] = asked
    if "features" in changed:
        changed["features"] = column_names(changed["features"])
    if "track" in changed:
        changed["track"] = tracked(changed["track"])
    if changed.get("test") is not None:
        changed["test"] = resolved(changed["test"])
    if changed.get("decisions") is not None:
        changed["decisions"] = str(Path(changed["decisions"]).resolve())
    if "device" in changed and find_device(changed["device"]) == find_device(request.device):
        del changed["device"]
    different = [
        f"{key} was {_listed(was)!r}, not {_listed(value)!r}"
        for key, value in changed.items()
        if (was := getattr(request, key)) != value
    ]
    if different:
        raise RunError(
            f"{path} was started with another configuration: {'; '.join(different)}. "
            "Resume it as it was, or start a new run in another folder"
        )
    folder = None if request.data_dir is None else Path(request.data_dir)
    device = find_device(request.device)
    gpu, fit = device.type == "cuda", encoder_fitter(request.model, device)
    with resumable(path), locked(path):
        source = open_source(request.data, say, folder, request, gpu=gpu, fit=fit)
        review = None if request.decisions is None else review_of(request.decisions, path)
        source = prepare(source, request.noise, request.seed, review, say)
        return carry_out(request, source, path, resume=True, say=say, follow=follow, review=review)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _named(request: Request) -> dict[str, list[Path]]:
    """What a run reads, and where it writes besides its folder, by option."""
    read = {name: getattr(request, name) for name in ("data", "test", "decisions", "model")}
    sent = [text.partition(":") for text in request.track]
    return {name: local_paths(text) for name, text in read.items() if text is not None} | {
        "data_dir": [] if request.data_dir is None else [Path(request.data_dir)],
        "track": [Path(where) for name, _, where in sent if name == "tensorboard" and where],
    }
