"""Options of a run: which method trains what network, how long, on what, and where the results go."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from stepe.options.data import names
from stepe.options.option import Option

if TYPE_CHECKING:
    from stepe.app.run import Run

TRAINING = "Training"
RESULTS = "The run"
EXPERIMENT = "Experiments"
METHOD_NAMES = (
    *("step-e", "step-e-plus", "plain", "oracle", "one-shot", "self-paced", "truncation", "label-smoothing", "gce"),
    *("sce", "mixup", "elr", "co-teaching", "margins", "prune"),
)
"""what ``stepe.methods.EVERY_METHOD`` holds, for those who do not load torch to say it"""


def trackers(track: str | Sequence[str]) -> list[str]:
    """Trackers by name; a folder of events is the same from everywhere."""
    found = []
    for text in [track] if isinstance(track, str) else track:
        name, _, where = text.partition(":")
        found.append(f"{name}:{Path(where).resolve()}" if name == "tensorboard" and where else text)
    return found


def folder(run: "Run | str | Path") -> str:
    """Name the folder of a run, the same from everywhere."""
    path = run if isinstance(run, str | Path) else run.path
    return str(Path(path).resolve())


Methods = Annotated[
    str | Sequence[str] | None,
    Option(
        f"One of {', '.join(METHOD_NAMES)}; a comma list (the first is the run, the others are compared with it); or "
        "all.",
        TRAINING,
        default="step-e-plus",
        read=lambda methods: ",".join(names(methods) or ()),
    ),
]
Preset = Annotated[
    str | None, Option("paper: exactly what the paper does (step-e, in-sample).", TRAINING, metavar="NAME")
]
Model = Annotated[
    str | None,
    Option(
        "Another network: timm:NAME for pictures, hf:NAME for texts.",
        TRAINING,
        metavar="KIND:NAME",
        default="a small network of our own",
    ),
]
Epochs = Annotated[int, Option("Length of the run.", TRAINING, default="20 to 60, by the size of the data", min=1)]
Balanced = Annotated[
    bool,
    Option("Let every class count alike in training, however rare; what is dropped does not depend on it.", TRAINING),
]
Strong = Annotated[
    float,
    Option(
        "Share of the pictures that are also turned, moved, recoloured and cut into, drawn anew each epoch; 0 is off.",
        TRAINING,
        metavar="SHARE",
        min=0,
        max=1,
    ),
]
Seed = Annotated[int, Option("Everything random follows from it.", TRAINING)]
Device = Annotated[str, Option("cpu, cuda, mps, or auto: the best there is.", TRAINING, free=True)]
Noise = Annotated[
    str | None,
    Option(
        "Noise to plant: symmetric, asymmetric, instance or outliers, as in symmetric:0.4; or none.",
        EXPERIMENT,
        metavar="KIND:RATE",
        default="symmetric:0.4 for bundled data, which is clean; none for your own",
    ),
]
Compare = Annotated[
    bool | None,
    Option(
        "Train plain, step-e-plus and, where clean labels are known, oracle too.",
        EXPERIMENT,
        default="on for bundled data where a network judges, else off",
    ),
]
Out = Annotated[
    str | Path | None, Option("Folder of the run.", RESULTS, metavar="PATH", default="runs/DATA-N", free=True)
]
Decisions = Annotated[
    "Run | str | Path",
    Option(
        "Train with what people decided about this earlier run: their labels are trusted.",
        RESULTS,
        metavar="RUN",
        read=folder,
    ),
]
Track = Annotated[
    str | Sequence[str],
    Option(
        "Send the history on: tensorboard (into the run folder) or tensorboard:DIR, wandb:PROJECT, mlflow:EXPERIMENT. "
        "May be given several times.",
        RESULTS,
        metavar="NAME[:WHERE]",
        read=trackers,
    ),
]
