"""What no option takes, refused in one place for all commands: an empty text, a second value, and a value of another kind."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperCommand

_FOREIGN = (("Input should be", "must be"), (", unable to parse string as an integer", ""))
_FOREIGN += ((", unable to parse string as a number", ""),)
"""Words of typer's errors, and ours."""


class Command(TyperCommand):
    """A command whose errors name the option and its value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words. typer.BadParameter for an empty text, bytes that are none, and a second value where there is one."""
        given: dict[str, Any] = {}
        if not ctx.resilient_parsing:
            given, _, order = self.make_parser(ctx).parse_args(args=list(args))
            for parameter, times in Counter(order).items():
                _check(ctx, parameter, given.get(parameter.name), times)
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            raise _named(error, given) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command. What the library says of an argument is said of the option here."""
        try:
            return super().invoke(ctx)
        except (ValueError, TypeError) as error:
            if type(error) in (ValueError, TypeError):
                of_task = {name for one in ctx.params.get("with_") or () for name in one.split("=")[:1]}
                named = {one.name: max(one.opts, key=len) for one in self.params if one.name not in of_task}
                error.args = (as_options(str(error), named),)
            raise


def as_options(text: str, options: Mapping[str, str]) -> str:
    """The text with `name=value` as `--name value`, for names of these options; True for a flag is its name alone.

    Calls of functions stay as they are, and what belongs to another option (`--with name=value`).
    """
    if not options:
        return text

    def written(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        name, flag, after = options[found[1]], found[2], found[3]
        return name if flag or not after or after in ",.:;) " else f"{name} "

    names = "|".join(map(re.escape, sorted(options, key=len, reverse=True)))
    return re.sub(rf"\w+\([^()]*\)|--(?:with|option) \S+|(?<![\w.-])({names})=(True\b)?(?=(.?))", written, text)


class App(typer.Typer):
    """A typer app of such commands."""

    def command(self, *args: Any, **options: Any) -> Any:
        """As in typer."""
        return super().command(*args, **{"cls": Command, **options})


def _check(ctx: Any, parameter: Any, value: Any, times: int) -> None:
    for each in value if isinstance(value, list | tuple) else [value]:
        if isinstance(each, str) and not each.strip():
            raise typer.BadParameter(f"{each!r} is empty. Give a value, or omit it", ctx=ctx, param=parameter)
        if isinstance(each, str) and any("\ud800" <= char <= "\udfff" for char in each):
            raise typer.BadParameter(f"{each!r:.60} is not valid UTF-8. Write it as text", ctx=ctx, param=parameter)
    if times > 1 and not getattr(parameter, "multiple", False) and not getattr(parameter, "is_flag", False):
        raise typer.BadParameter(f"{value!r} is its value number {times}. Give one", ctx=ctx, param=parameter)


def _named(error: typer.BadParameter, given: dict[str, Any]) -> typer.BadParameter:
    """The error, with the value and without words of other libraries."""
    value = given.get(getattr(error.param, "name", None) or "")
    for theirs, ours in _FOREIGN:
        error.message = error.message.replace(theirs, ours)
    if value is not None and str(value) not in error.message:
        error.message = f"{value!r}: {error.message}" if isinstance(value, list) else f"{value!r} {error.message}"
    return error
