"""The belief of a run in its folder: one file of arrays, whole or not there, that runs nothing when it is read."""

from dataclasses import astuple, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from stepe.beliefs.belief import Belief
from stepe.beliefs.rate import UNKNOWN, Rate
from stepe.errors import RunError
from stepe.files import inside, replacing
from stepe.run.record import Config, Summary

if TYPE_CHECKING:
    import pandas as pd

FILE = "belief.npz"
FORMAT = 2


def write_belief(folder: Path, belief: Belief) -> None:
    """Write a belief into a run folder, under the names of its fields."""
    arrays: dict[str, Any] = {name: value for name, value in vars(belief).items() if name != "rate"}
    arrays["evidence"] = np.nan if belief.evidence is None else belief.evidence
    with replacing(inside(folder, FILE)) as temporary:
        np.savez_compressed(temporary, format=FORMAT, rate=np.array(astuple(belief.rate)), **arrays)


def read_belief(folder: Path) -> Belief | None:
    """Read the belief of a run folder; ``None`` where an older version wrote none."""
    path = inside(folder, FILE)
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as found:
            if int(found["format"]) != FORMAT:
                raise RunError(f"{path} was made by another version of stepe; use that one")
            arrays: dict[str, Any] = {each.name: found[each.name] for each in fields(Belief)}
        arrays["rate"] = Rate(*arrays["rate"].tolist())
        arrays |= {name: bool(arrays[name]) for name in ("rate_was_found", "has_signal")}
        evidence = float(arrays["evidence"])
        belief = Belief(**arrays | {"evidence": None if evidence != evidence else evidence})
        rows = {len(each) for each in (belief.p_right, belief.suggestion, belief.confidence, belief.flagged)}
        if len(rows) > 1 or belief.noise.shape != (len(belief.recognised),) * 2:
            raise ValueError("its parts do not belong together")
    except (OSError, ValueError, TypeError, KeyError, EOFError, BadZipFile) as error:
        raise RunError(f"{path} cannot be read ({error}); make the run again") from error
    return belief


def belief_of_tables(config: Config, summary: Summary, samples: "pd.DataFrame") -> Belief:
    """Put together what the tables of a run say of its belief, for runs of older versions."""
    training = samples[samples["split"] == "train"]
    number = {name: i for i, name in enumerate(config.class_names)}
    classes, known = len(number), config.fit.noise_rate
    recognised = np.ones(classes, dtype=np.bool_)
    recognised[list(summary.hardly_recognised)] = False
    return Belief(
        rate=summary.noise_rate or (UNKNOWN if known is None else Rate(known, known, known)),
        rate_was_found=summary.noise_rate is not None,
        noise=np.full((classes, classes), np.nan),
        p_right=1 - training["suspicion"].to_numpy(dtype=np.float64),
        suggestion=np.array([number.get(name, -1) for name in training["suggested_label"]], dtype=np.int64),
        confidence=training["suggestion_confidence"].to_numpy(dtype=np.float64),
        recognised=recognised,
        flagged=training["flagged"].to_numpy(dtype=np.bool_),
    )
