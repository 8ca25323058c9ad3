"""The record of a run: what was asked for and what came out, as ``config.json`` and ``summary.json`` keep them.

Fields have the names that they have there. One with a default may be missing: older versions did not write it.
"""

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self

from stepe.beliefs.rate import Rate
from stepe.errors import RunError
from stepe.files import plain
from stepe.loop.metrics import Detection
from stepe.options.layout import DataKind, Layout
from stepe.run.reading import read_json, typed

Auto = Literal["auto"]
FORMAT = 2
"""the format of the files that this version writes"""
READABLE = (1, FORMAT)
"""formats whose runs can be read; those of the present one can also go on"""
AUDIT = "audit"
"""what a run of judges is called where others have the name of a method"""
PREPROCESSING = "preprocessing.json"
"""how inputs become numbers, and what the model makes of these"""


@dataclass(frozen=True, kw_only=True)
class Request(Layout):
    """What was asked for, the data's layout included, and what the data made of it.

    The defaults are those of a run that was not made by ``stepe clean``.
    """

    name: str = "arrays"
    """what to call the data"""
    data: str | None = None
    """``None``: arrays or a table in memory, which only their owner can bring again"""
    methods: tuple[str, ...] = ()
    """the first is the run; the others are trained for comparison"""
    noise: str | None = None
    epochs: int = 0
    warmup: int | Auto | None = None
    rho_max: float | Auto | None = None
    noise_rate: float | None = None
    min_keep: float | None = None
    seed: int = 0
    device: str = "auto"
    data_dir: str | None = None
    probe: str = "in-sample"
    kind: DataKind = "features"
    """the kind of data: images, text, table or features"""
    held_out_is_clean: bool = False
    """whether the held-out labels are known to be right"""
    uniform_classes: bool = False
    """whether all classes are known to be equally frequent"""
    is_experiment: bool = False
    """whether the noise is known or planted, so that nobody needs the data cleaned"""
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
    judges: tuple[str, ...] = ()
    """who judges the labels; none: a network"""
    evidence: float | None = None
    """how much a label says for itself; ``None``: as the kind of data has it"""
    top: int | None = None
    """how many labels are flagged at most"""
    min_suspicion: float | None = None
    """how suspicious a label has to be, to be flagged"""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What was trained, on what, and how: a run that goes on must share all of it with its beginning."""

    method: str
    options: dict[str, Any] = field(default_factory=dict)
    """the options of the method"""
    epochs: int = 0
    seed: int = 0
    batch_size: int = 0
    probe_batch_size: int = 0
    noise_rate: float | None = None
    """the known share of wrong labels; ``None``: nobody knows it"""
    optimizer: dict[str, Any] = field(default_factory=dict)
    rate: Any = None
    criterion: Any = None
    amp: str | None = None
    deterministic: bool = False
    device: str = ""
    samples: int = 0
    """how many there are to train on"""
    classes: int = 0
    inputs: str | None = None
    """a digest, like the next ones: other data is noticed"""
    labels: str = ""
    probe: str = "in-sample"
    trusted: str | None = None
    weight: str | None = None
    groups: str | None = None
    model: str = ""
    """its class, and a digest of the shapes of its weights"""


@dataclass(frozen=True)
class MethodFacts:
    """A method's description of itself."""

    summary: str = ""
    """the method in a line"""
    trains_on: str = "given"
    """``given`` labels, or ``clean`` ones"""


@dataclass(frozen=True)
class Environment:
    """The versions and the machine that a run was made with, and its command line."""

    stepe: str = ""
    commit: str | None = None
    python: str = ""
    torch: str | None = None
    numpy: str | None = None
    scikit_learn: str | None = None
    pandas: str | None = None
    safetensors: str | None = None
    platform: str = ""
    device: str = ""
    device_name: str = ""
    cpus: int | None = None
    threads: int = 0
    seed: int | None = None
    command: str = ""
    time: str = ""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The content of ``config.json``, which is written when a run begins."""

    format: int = FORMAT
    options: dict[str, Any] = field(default_factory=dict)
    """every option of ``stepe clean`` as the run took it: it is resumed with these"""
    request: Request | None = None
    """``None``: a run of :func:`stepe.fit`, or one that is trained for comparison"""
    method: MethodFacts = MethodFacts()
    fit: Fit
    class_names: list[str]
    environment: Environment = Environment()

    def to_json(self) -> dict[str, Any]:
        """Return the configuration as plain JSON values."""
        found: dict[str, Any] = plain(asdict(self))
        return found

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the configuration of a run, or say that there is none."""
        path = folder / "config.json"
        try:
            found = read_json(folder, path.name)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise RunError(f"{folder} is not a run folder (no config.json); runs are made by `stepe clean`") from error
        if found.get("format") not in READABLE:
            raise RunError(f"{path} is not of a run that this version of stepe can read")
        return typed(cls, _renamed(found), path)

    def check_resumable(self, folder: Path) -> None:
        """Refuse to go on with the run of an older version, which may have trained otherwise."""
        if self.format != FORMAT:
            raise RunError(
                f"{folder} was begun by an older version of stepe: its run can be read, reviewed and predicted with, "
                "but not resumed; start it anew in another folder"
            )


def _renamed(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration with its fields as they are called today; format 1 said four things by one word."""
    request = config.get("request")
    if not isinstance(request, dict) or "held_out_noisy" not in request:
        return config
    clean = not request["held_out_noisy"]
    known = {"held_out_is_clean": clean, "uniform_classes": clean, "is_experiment": clean or request.get("noise")}
    return config | {"request": request | {name: bool(each) for name, each in known.items()}}


@dataclass(frozen=True)
class Contradicted:
    """The shares of the labels that models contradicted in the warm-up: of those they trained on, and of others."""

    trained: float
    unseen: float


@dataclass(frozen=True)
class ProbeFacts:
    """The judge of the samples, and how it was chosen."""

    reach: str = "in-sample"
    """``in-sample``, or ``cross:KxR``"""
    chosen: bool | None = None
    """whether that was found out in the warm-up; ``None``: it was given"""
    contradicted: Contradicted | None = None
    """what it was found out by"""


@dataclass(frozen=True)
class NoiseFound:
    """The quality of the flags and drops, where the wrong labels are known."""

    noisy: int
    """how many labels are wrong"""
    auroc: float | None
    """the AUROC of the scores; ``None`` where no label is wrong, or all are"""
    dropped: Detection
    flagged: Detection


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A run in a few numbers, as ``summary.json`` holds them when it is finished. The last epoch counts."""

    method: str = ""
    epochs: int = 0
    samples: int
    """how many were trained on"""
    dropped: int = 0
    flagged: int
    seconds: float = 0.0
    seconds_per_epoch: float = 0.0
    probe: ProbeFacts = ProbeFacts()
    rho_max: float | None = None
    """the largest share that may be dropped"""
    warmup: int | None = None
    """epochs before anything is dropped; ``None``: the method has no warm-up"""
    noise_rate: Rate | None = None
    """how many labels are wrong, where that was found out"""
    hardly_recognised: tuple[int, ...] = ()
    """classes with labels that may not all be called wrong"""
    test_loss: float | None = None
    """this and the next two are measured on held-out samples, where there are any"""
    test_accuracy: float | None = None
    best_test_accuracy: float | None = None
    agreement: float | None = None
    """share of the given labels that judges who did not see them would give, too"""
    panel: dict[str, float] = field(default_factory=dict)
    """each judge's share of what they say together"""
    held_out: int | None = None
    """how many held-out labels were judged as well, and the next one how many of them look wrong"""
    held_out_flagged: int | None = None
    noise: NoiseFound | None = None
    unlabelled: int | None = None
    """how many samples without a label were predicted, where there are any"""
    more: dict[str, Any] = field(default_factory=dict)
    """what else a user's own method found out; it stands beside the others in the file"""

    @property
    def flagged_share(self) -> float:
        """The share of the labels that look wrong."""
        return self.flagged / self.samples

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain JSON values; what is not known is left out."""
        found: dict[str, Any] = plain(asdict(self))
        more: dict[str, Any] = found.pop("more")
        found["probe"] = _known(found["probe"])
        return _known(found) | more

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the summary of a finished run."""
        path = folder / "summary.json"
        try:
            found = read_json(folder, path.name)
        except OSError as error:
            raise RunError(f"{path} cannot be read ({error}); make the run again") from error
        names = {each.name for each in fields(cls)}
        more = {name: value for name, value in found.items() if name not in names}
        probe = found.get("probe")
        if isinstance(probe, dict) and probe.get("contradicted") == {}:  # older versions wrote this for nothing
            found["probe"] = probe | {"contradicted": None}
        return typed(cls, found | {"more": more}, path)


def _known(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if value not in (None, (), {})}
