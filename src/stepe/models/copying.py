"""Copies of a user's model, for what needs a second one."""

import copy

from torch import nn

from stepe.errors import InputError


def copy_of(model: nn.Module, purpose: str) -> nn.Module:
    """Make a deep copy of a model.

    Where none can be made, the error says ``purpose``: what the copy is for, and how to do without.
    """
    try:
        return copy.deepcopy(model)
    except Exception as error:
        raise InputError(
            f"this {type(model).__name__} cannot be copied by copy.deepcopy ({error}); {purpose}. A norm of "
            "torch.nn.utils, such as weight_norm, is the usual reason: that of torch.nn.utils.parametrizations can be "
            "copied"
        ) from error
