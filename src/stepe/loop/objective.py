"""The joint objective J(theta, gamma) of section 3.2 (Eq. 1) and its exact minimiser over gamma.

The paper prints ``J = mean(gamma * loss) + lambda * mean(gamma)`` and says that the second term encourages keeping
samples. Minimised with lambda > 0 it rewards dropping them, so the text needs the other sign. Here a positive
``keep_reward`` rewards keeping:

    J = mean(gamma * loss) - keep_reward * mean(gamma),   subject to  sum(1 - gamma) <= floor(rho_max * n)

With the reward above every loss the optimum keeps all samples; at zero (and positive losses) it drops exactly the
allowed number, those with the highest losses.
"""

import torch
from torch import Tensor

from stepe.loop.numpy_selection import keep_count
from stepe.loop.schedule import check_drop_fraction
from stepe.loop.selection import Selection, select


def objective(losses: Tensor, kept: Tensor, keep_reward: float = 0.0) -> Tensor:
    """J for a loss vector and a gate gamma (a mask, or weights in [0, 1])."""
    gamma = kept.to(losses.dtype)
    # A dropped sample counts nothing, even where its loss is infinite (0 * inf is NaN).
    return torch.where(gamma > 0, gamma * losses, 0).mean() - keep_reward * gamma.mean()


def minimise_over_gates(losses: Tensor, rho_max: float, keep_reward: float = 0.0) -> Selection:
    """Choose the gates that minimise J for fixed losses.

    Each sample contributes ``loss - keep_reward`` if kept, so the optimum keeps every sample whose loss is below the
    reward, and beyond those only as many as the constraint demands, lowest first.
    """
    check_drop_fraction(rho_max)
    n = len(losses)
    worth_keeping = int(torch.count_nonzero(torch.isfinite(losses) & (losses < keep_reward)))
    dropped = n - max(keep_count(n, rho_max), worth_keeping)
    # Half a sample more, which the selection floors away: (dropped / n) * n may round below dropped.
    return select(losses, (dropped + 0.5) / n if dropped else 0.0)
