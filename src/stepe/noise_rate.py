"""From what is known about the noise to rho_max, the largest fraction ever dropped."""

from stepe.errors import InputError
from stepe.schedule import check_drop_max

MARGIN = 0.05
CAP = 0.5


def drop_max_from_rate(rate: float) -> float:
    """The paper's rule: ``min(0.5, rate + 0.05)``.

    >>> drop_max_from_rate(0.4)
    0.45
    """
    if not 0 <= rate <= 1:
        raise InputError(f"the noise rate is {rate!r}; it must be a share in [0, 1]")
    return min(CAP, float(rate) + MARGIN)


def resolve_drop_max(rho_max: float | None, noise_rate: float | None) -> float:
    """rho_max as the user gave it, or from a known noise rate.

    This is the seam for an automatic choice: methods call it once, when a run starts, and keep the answer in their
    state, which checkpoints save.
    """
    if rho_max is not None:
        check_drop_max(rho_max)
        return float(rho_max)
    if noise_rate is not None:
        return drop_max_from_rate(noise_rate)
    raise InputError(
        "rho_max is missing: say what share of the labels may be dropped at most (rho_max=0.2, or --rho-max 0.2 on the "
        "command line: a little above the share of wrong labels you expect), or give noise_rate, from which it "
        "follows; finding it automatically is not available yet"
    )
