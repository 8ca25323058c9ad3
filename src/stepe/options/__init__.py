"""Options: each is declared here once, with what it means, its range and the panel of ``--help`` it stands in.

Signatures take the declarations as annotations (``rho_max: RhoMax = None``); the command line, config.json, the checks
of a resumed run and the reference in docs/options.md read them from there. May import ``files`` and ``errors``.
"""

from stepe.options.check import (
    canonical,
    check_fields,
    check_names,
    check_values,
    checked,
    declared_options,
    differing,
)
from stepe.options.option import Declared, Option, options_of

__all__ = [
    "Declared",
    "Option",
    "canonical",
    "check_fields",
    "check_names",
    "check_values",
    "checked",
    "declared_options",
    "differing",
    "options_of",
]
