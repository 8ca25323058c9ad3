"""The record of a run: what was asked for and what came out, as config.json and summary.json keep them."""

from dataclasses import dataclass
from typing import Any, Literal

from stepe.options.layout import DataKind, Layout

Auto = Literal["auto"]


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
    kind: DataKind = "features"
    """of data: images, text, table or features"""
    is_experiment: bool = False
    """whether the noise is known or planted, so that nobody needs the data cleaned"""
    uniform_classes: bool = False
    """whether all classes are known to be equally frequent"""
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
        values = saved | lists
        if "held_out_noisy" in values:  # older versions said these two things by one word
            values["is_experiment"] = not values["held_out_noisy"] or values["noise"] is not None
            values["uniform_classes"] = not values.pop("held_out_noisy")
        return cls(**values)
