"""How fast the engines train the paper's network: alone and in fleets, beside what the arithmetic alone would take.

The pictures are random bytes of CIFAR's shape: speed does not depend on what they show.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from stepe.loop.plan import batch_sizes
from stepe.loop.randomness import Stream, seeded
from stepe.methods import Plain
from stepe.models.resnet import Stem, resnet18
from stepe.samples.augmentation import CropFlip, Normalised
from stepe.training.building import ENGINES, Silent, Training
from stepe.training.fit import Job, begin
from stepe.training.fleet import run_together
from stepe.training.session import Row

CLASSES = 100
SIDE = 32
BATCH = 128
PROBE_BATCH = 5000
EPOCHS = 3
"""of each measurement; the first, in which graphs are captured and kernels chosen, is not counted"""


@dataclass(frozen=True)
class Speed:
    """One engine on one network, alone or in a fleet."""

    stem: Stem
    engine: str
    fleet: int
    ms_per_step: float
    """of one run; in a fleet, of the fleet's time per step of any of its runs"""
    seconds_per_epoch: float
    """of plain training, per run"""
    probe_seconds: float | None
    """of all samples; measured alone"""
    tflops: float
    """achieved in training"""
    share_of_floor: float
    """time that the arithmetic alone would take, over the time it took"""


@dataclass(frozen=True)
class Setting:
    """What is measured."""

    device: torch.device
    images: int = 50_000
    batch: int = BATCH
    stems: Sequence[Stem] = ("imagenet", "cifar")
    engines: Sequence[str] = tuple(ENGINES)
    fleets: Sequence[int] = (1, 2, 4, 8, 18)

    @property
    def steps(self) -> int:
        """In an epoch of plain training."""
        return len(batch_sizes(self.images, self.batch))


def measure(setting: Setting, show: Callable[[Speed], None] = lambda speed: None) -> dict[str, object]:
    """Measure all that was asked for, as JSON values."""
    peak = peak_tflops(setting.device)
    rows = []
    for stem in setting.stems:
        for engine in setting.engines:
            for fleet in setting.fleets:
                if fleet > 1 and engine == "eager":
                    continue  # the host is the bottleneck: a fleet of it has nothing to overlap
                rows.append(_measure_one(setting, stem, engine, fleet, peak))
                show(rows[-1])
    return {
        "images": setting.images,
        "batch": setting.batch,
        "peak_tflops": peak,
        "rows": [asdict(row) for row in rows],
    }


COLUMNS = ("stem", "engine", "runs", "ms/step", "s/epoch", "probe s", "TFLOP/s", "of floor")


def cells(speed: Speed) -> list[str]:
    """Write a row under ``COLUMNS``."""
    return [
        speed.stem,
        speed.engine,
        str(speed.fleet),
        f"{speed.ms_per_step:.3f}",
        f"{speed.seconds_per_epoch:.3f}",
        "-" if speed.probe_seconds is None else f"{speed.probe_seconds:.3f}",
        f"{speed.tflops:.1f}",
        f"{speed.share_of_floor:.1%}",
    ]


def markdown(rows: Sequence[Row]) -> str:
    """Write rows of a result file as the table that documents show."""
    lines = [COLUMNS, ["---", "---", *["--:"] * (len(COLUMNS) - 2)], *(cells(Speed(**row)) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _measure_one(setting: Setting, stem: Stem, engine: str, fleet: int, peak: float) -> Speed:
    data = _pictures(setting)
    clocks = [_Clock() for _ in range(fleet)]
    jobs = [_job(setting, stem, engine, data, seed, clock) for seed, clock in enumerate(clocks)]
    if fleet == 1:
        jobs[0].finish()
        seconds = statistics.median(clocks[0].epochs[1:])
    else:
        run_together(jobs)
        seconds = _seconds_in_fleet(clocks)
    flops = flops_per_sample(stem) * setting.images
    return Speed(
        stem=stem,
        engine=engine,
        fleet=fleet,
        ms_per_step=1000 * seconds / setting.steps,
        seconds_per_epoch=seconds,
        probe_seconds=_probe_seconds(clocks[0].training) if fleet == 1 else None,
        tflops=flops / seconds / 1e12,
        share_of_floor=flops / peak / 1e12 / seconds,
    )


def _seconds_in_fleet(clocks: "Sequence[_Clock]") -> float:
    """Per epoch of any run, over the time in which all of them are past their first."""
    start = max(clock.ends[0] for clock in clocks)
    end = max(clock.ends[-1] for clock in clocks)
    done = sum(
        (clock.ends[-1] - max(start, clock.ends[0])) / (clock.ends[-1] - clock.ends[0]) * (len(clock.ends) - 1)
        for clock in clocks
    )
    return (end - start) / done


class _Clock(Silent):
    """When the epochs ended, and how long they took."""

    def __init__(self) -> None:
        self.epochs: list[float] = []
        self.ends: list[float] = []

    def run_started(self, training: Training) -> None:
        self.training = training

    def epoch_ended(self, training: Training, row: Row) -> None:
        self.epochs.append(row["seconds"])
        self.ends.append(time.perf_counter())


def _pictures(setting: Setting) -> tuple[Tensor, Tensor]:
    draw = torch.Generator(setting.device).manual_seed(0)
    shape = (setting.images, 3, SIDE, SIDE)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=draw, device=setting.device)
    return images, torch.arange(setting.images) % CLASSES


def _job(setting: Setting, stem: Stem, engine: str, data: tuple[Tensor, Tensor], seed: int, clock: _Clock) -> Job:
    with seeded(Stream.named(seed, "init")):
        model = resnet18(CLASSES, stem=stem)
    return begin(
        model,
        *data,
        method=Plain(),
        epochs=EPOCHS,
        batch_size=setting.batch,
        probe_batch_size=PROBE_BATCH,
        forward=Normalised.by([0.5] * 3, [0.25] * 3, setting.device),
        augment=CropFlip(),
        amp="bf16" if setting.device.type == "cuda" else None,
        engine=engine,  # type: ignore[arg-type]
        device=setting.device,
        seed=seed,
        observers=(clock,),
    )


def _probe_seconds(training: Training) -> float:
    def once() -> float:
        started = time.perf_counter()
        training.engine.probe(0, "augmented")
        _wait(training.engine.device)
        return time.perf_counter() - started

    once()
    return min(once() for _ in range(2))


def flops_per_sample(stem: Stem) -> float:
    """Count the floating point operations of training on one picture: forward and backward."""
    model = resnet18(CLASSES, stem=stem)
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(2, 3, SIDE, SIDE)).sum().backward()
    return float(counter.get_total_flops()) / 2


def peak_tflops(device: torch.device) -> float:
    """Measure what a large matrix product reaches here: the floor is the time at this rate."""
    size, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (1024, torch.float32)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(12):
        _wait(device)
        started = time.perf_counter()
        a @ b
        _wait(device)
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best / 1e12


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
