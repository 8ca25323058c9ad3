"""Options of the methods: what is dropped and when, and what becomes of it."""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from stepe.options.option import Option

DROPPED = "What is dropped"
DETAILS = "Step-E in detail"
PLUS = "Step-E+"

# -- Of every method that drops labels -----------------------------------------------------------------------------

RhoMax = Annotated[
    float | Literal["auto"] | None,
    Option(
        "Largest share of the samples that is ever dropped; auto: it is estimated.",
        DROPPED,
        metavar="SHARE",
        default="min(0.5, rate + 0.05) where `noise_rate` is known, else auto",
        min=0,
        below=1,
    ),
]
KnownRhoMax = Annotated[
    float | None,
    Option(
        "Share of the samples that is dropped.",
        DROPPED,
        metavar="SHARE",
        default="min(0.5, rate + 0.05) where `noise_rate` is known",
        min=0,
        below=1,
    ),
]
Warmup = Annotated[
    int | Literal["auto"] | None,
    Option(
        "Epochs before anything is dropped; auto: until nothing but noise is learned, a sixth of the run at most.",
        DROPPED,
        metavar="EPOCHS",
        default="a sixth of the run",
        min=0,
    ),
]
NoiseRate = Annotated[
    float,
    Option("Share of wrong labels, if you know it; `rho_max` follows from it.", DROPPED, metavar="SHARE", min=0, max=1),
]
MinKeep = Annotated[
    float,
    Option(
        "Share of every class, or of every `group`, that is never dropped, to protect rare ones; 0 is off.",
        DROPPED,
        metavar="SHARE",
        default="0.5 where judges judge, 0 in networks",
        min=0,
        max=1,
    ),
]
Probe = Annotated[
    str,
    Option(
        "Who judges the samples: in-sample (the model in training, as in the paper), cross:K or cross:KxR (models that "
        "never trained on them, one for each of K folds, in R independent splits), or auto (cross-fitted, until the "
        "model turns out in the warm-up not to learn its labels by heart).",
        DROPPED,
        default="auto; in-sample for bundled data",
    ),
]

# -- Step-E and one-shot filtering in detail -----------------------------------------------------------------------

Score = Annotated[
    Literal["auto", "loss", "guess", "posterior"],
    Option(
        "What samples are ranked by: the latest loss, as in the paper; the loss of the running guess; or how unlikely "
        "the label is by the guess and by how labels go wrong. auto: the last where `rho_max` is estimated or the "
        "probe is cross-fitted, else the loss.",
        DETAILS,
    ),
]
Softness = Annotated[
    float,
    Option("Give less weight instead of dropping, with this temperature in units of loss; 0 drops.", DETAILS, min=0),
]
View = Annotated[
    Literal["augmented", "plain"], Option("Which pictures the probe sees: augmented as in training, or plain.", DETAILS)
]
Schedule = Annotated[
    str | Callable[[float], float],
    Option(
        "How the share that is dropped grows: auto (Eq. 2; it ends early in short runs), linear, early, proportional "
        "(as long as the warm-up), or a function.",
        DETAILS,
    ),
]
RampEnd = Annotated[
    int | None, Option("Epoch at which `rho_max` is reached.", DETAILS, metavar="EPOCH", default="by `schedule`", min=0)
]
Memory = Annotated[
    float,
    Option(
        "How much of the score is left when the next probe comes in: score <- memory * score + (1 - memory) * loss.",
        DETAILS,
        min=0,
        below=1,
    ),
]
Sticky = Annotated[bool, Option("Never take back what was dropped, as the paper's section 2.3 words it.", DETAILS)]
ProbeEvery = Annotated[
    int,
    Option(
        "Epochs from one probe to the next: scores get older, and epochs cheaper. Step-E+ takes no fewer than 3 where "
        "a model was watched (`probe` auto) and may judge for itself.",
        DETAILS,
        metavar="EPOCHS",
        min=1,
    ),
]

# -- Step-E+ -------------------------------------------------------------------------------------------------------

Average = Annotated[
    float | None,
    Option(
        "Epochs over which weights are averaged for the model that is probed and tested; 0 is off.",
        PLUS,
        metavar="EPOCHS",
        default="0.85 where that model judges the samples it trains on, else off",
        min=0,
    ),
]
GuessMemory = Annotated[
    float | None,
    Option(
        "How much of the running guess is left when the next probe comes in.",
        PLUS,
        metavar="SHARE",
        default="0.9; of Step-E+, 0.85 where the model judges the samples it trains on, else so much after a sixtieth "
        "of the run",
        min=0,
        max=1,
    ),
]
Prior = Annotated[
    Literal["none", "uniform", "given"] | Sequence[float],
    Option(
        "How often the classes occur, to which guesses are aligned: none (they stay as they are), uniform, given (as "
        "often as the labels say), or one number a class.",
        PLUS,
    ),
]
Correct = Annotated[
    bool, Option("Train the dropped samples on the running guess, weighted by its confidence; else not at all.", PLUS)
]
Refine = Annotated[
    float | None,
    Option(
        "How much of a kept label the guess replaces once `rho_max` is reached.",
        PLUS,
        metavar="SHARE",
        default="half of it where the model judges the samples it trains on, else nothing",
        min=0,
        max=1,
    ),
]
Blend = Annotated[
    float,
    Option(
        "Train on blends of two samples, in shares drawn from Beta(mixup, mixup), the larger for the first; 0 is off.",
        PLUS,
        min=0,
    ),
]
Cutmix = Annotated[
    float,
    Option(
        "Of the blended pictures, the share that has a window on another picture instead.",
        PLUS,
        metavar="SHARE",
        min=0,
        max=1,
    ),
]
