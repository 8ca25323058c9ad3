"""Options of the command line, made from those that a function's signature declares."""

import inspect
import re
from collections.abc import Callable, Container
from typing import Annotated, Any, cast

import typer

from stepe.cli.messages import escape
from stepe.options import Declared, declared_options


def with_options(
    declaring: Callable[..., Any], *, without: Container[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Have a command take the options that a function declares; it is handed those that were typed, by name, first."""
    declared = {name: option for name, option in declared_options(declaring).items() if name not in without}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def run(context: typer.Context, **values: Any) -> None:
            texts = {name: values.pop(name) for name in declared}
            typed = {name: text for name, text in texts.items() if _is_typed(context, name)}
            command(
                {name: declared[name].parse(text) if isinstance(text, str) else text for name, text in typed.items()},
                **values,
            )

        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        parameters = [context, *(_parameter(option, declared) for option in declared.values())]
        parameters += [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        cast(Any, run).__signature__ = inspect.Signature(parameters)
        return run

    return decorate


def _is_typed(context: typer.Context, name: str) -> bool:
    """Say whether an option was typed, and is not just its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _parameter(option: Declared, others: dict[str, Declared]) -> inspect.Parameter:
    """Make of an option what typer reads: of type bool, int, float, a text, or a list of texts."""
    kind: Any = option.number if option.number is not None and not option.words else bool if option.is_switch else str
    default: Any = None
    if isinstance(option.default, tuple):
        kind, default = list[kind], []
    elif option.is_switch and option.default is not None:
        default = option.default
    help = _in_words(option, others)
    info: Any
    if option.is_positional:
        info = typer.Argument(metavar=option.option.metavar, help=help, show_default=False)
    else:
        asked_both_ways = option.is_switch and option.default is None
        flag = f"{option.flag}/--no-{option.flag.removeprefix('--')}" if asked_both_ways else option.flag
        panel, metavar = option.option.panel, option.option.metavar
        info = typer.Option(flag, metavar=metavar, help=help, show_default=False, rich_help_panel=panel)
    kind = kind if default is not None else kind | None
    annotation = Annotated[kind, info]
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _in_words(option: Declared, others: dict[str, Declared]) -> str:
    """Say what an option does, with its default; others are named as they are typed."""
    told = option.option.help + (f" [default: {option.without}]" if option.without else "")
    named = re.sub("`(.+?)`", lambda name: others[name[1]].flag if name[1] in others else name[1], told)
    return escape(named)
