"""What no option takes, refused in one place for all commands: an empty text, a second value, and a value of another kind."""

from __future__ import annotations

from collections import Counter
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
