"""``stepe clean --resume``: an interrupted run goes on to the result it would have had."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepe.app.begin import begin, check_same, recorded_options
from stepe.app.clean import clean
from stepe.app.interrupted import resumable
from stepe.app.run import Run
from stepe.errors import RunError
from stepe.options import canonical, check_names, check_values, declared_options
from stepe.run.paths import Trust, check_paths, local_paths

if TYPE_CHECKING:
    from stepe.app.work import Follow

READ = ("data", "test", "decisions", "model")
"""options that may name what is read"""


def resume(
    path: str | Path,
    *,
    trust_paths: Trust = False,
    say: Callable[[str], None] = lambda message: None,
    follow: "Follow | None" = None,
    **changed: Any,
) -> Run:
    """Continue an interrupted run, to the same result as if it had never been interrupted.

    ``changed`` are options of :func:`stepe.clean` that the caller insists on; one that differs from the run's own is an
    error, unless it says where things are. A run that somebody else made reads and writes where its folder says only
    with ``trust_paths``.
    """
    path = Path(path)
    recorded = recorded_options(path)
    check_names(changed, declared_options(clean), "stepe.clean")
    check_values(clean, changed)
    changed = canonical(clean, changed)
    if (data := changed.get("data", recorded["data"])) is None:
        raise RunError(
            f"{path} was made from arrays; resume it with stepe.clean((features, labels), ..., resume=True), or with "
            "the table it was made from"
        )
    check_paths(path, {name: paths for name, paths in _named(recorded).items() if name not in changed}, trust_paths)
    check_same(path, recorded, changed)
    options = recorded | changed | {"out": str(path)}
    with resumable(path):
        return begin(data, options, resume=True, say=say, follow=follow)


def _named(options: Mapping[str, Any]) -> dict[str, list[Path]]:
    """Name what a run reads, and where it writes besides its folder, by option."""
    sent = [text.partition(":") for text in options["track"]]
    return {name: local_paths(options[name]) for name in READ if options[name] is not None} | {
        "data_dir": [] if options["data_dir"] is None else [Path(options["data_dir"])],
        "track": [Path(where) for name, _, where in sent if name == "tensorboard" and where],
    }
