"""``stepe methods``: what each method is, and what its options would be for some data. Nothing is trained."""

from collections.abc import Callable
from typing import Any

from stepe.app.begin import prepare
from stepe.app.clean import clean
from stepe.app.request import checked_method
from stepe.errors import InputError
from stepe.methods import method_class
from stepe.options import canonical, check_names, check_values, declared_options
from stepe.options.audit import NETWORK


def describe_method(name: str) -> dict[str, Any]:
    """Describe a method: a line, who proposed it, and its options as they are by default."""
    kind = method_class(name)
    options = {option: declared.default for option, declared in declared_options(kind).items()}
    return {"summary": kind.summary, "paper": kind.paper, "options": options}


def methods_for(
    data: Any, say: Callable[[str], None] = lambda message: None, **options: Any
) -> dict[str, dict[str, Any] | str]:
    """Say what each option of each method would be for some data, or why the method cannot be had for them.

    ``options`` are those of :func:`stepe.clean`.
    """
    declared = declared_options(clean)
    check_names(options, declared, "stepe.clean")
    check_values(clean, options)
    defaults = {name: option.canonical(option.default) for name, option in declared.items()}
    given = defaults | {"compare": False} | canonical(clean, options)
    if given["method"] is None and given["preset"] is None:
        given["method"] = "all"
    ready = prepare(data, given | {"judges": NETWORK}, say)
    found: dict[str, dict[str, Any] | str] = {}
    for name in ready.request.methods:
        try:
            method, task = checked_method(name, ready.request, ready.source)
            found[name] = method.resolved(task)
        except InputError as error:
            found[name] = str(error)
    return found
