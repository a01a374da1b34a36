"""The permission to run generated code on the command line: its two values, and what is refused before a model loads."""

from __future__ import annotations

from typing import Any

import pytest

from lens_heads.cli import options
from lens_heads.cli.options import code_execution, permission, spelled_out
from lens_heads.trials import sandbox
from tests.attack.held import refused

GIVEN: dict[str, tuple[list[str], Any]] = {
    "nothing": ([], None),
    "the flag": (["--allow-code-execution"], "confined"),
    "unsafe": (["--allow-code-execution=unsafe"], "unsafe"),
}
REFUSED: dict[str, tuple[Any, str]] = {
    "another value": (lambda: permission("yes"), "--allow-code-execution=yes: omit the value, or use unsafe"),
    "an empty value": (lambda: permission(""), "--allow-code-execution=: omit the value"),
    "no task that takes it": (lambda: code_execution(["arithmetic"], "unsafe", True), "no task of arithmetic runs"),
    "missing": (lambda: code_execution(["mbpp"], None, True), "Pass --allow-code-execution, or measure only"),
    "by --with": (
        lambda: options.trials("mbpp", ["allow_code_execution=unsafe"]),
        "Use the flag --allow-code-execution.",
    ),
}


@pytest.mark.parametrize(("words", "value"), GIVEN.values(), ids=GIVEN)
def test_the_flag_stands_with_or_without_a_value(words: list[str], value: Any) -> None:
    import typer

    app, seen = typer.Typer(), []

    @app.command()
    def command(allow: options.AllowCode = None, model: options.Model = "none") -> None:
        seen.append((allow, model))

    app(spelled_out([*words, "-m", "mine"]), standalone_mode=False)
    assert seen == [(value, "mine")]
    assert permission(value) == {None: False, "confined": True, "unsafe": "unsafe"}[value]


@pytest.mark.parametrize(("call", "says"), REFUSED.values(), ids=REFUSED)
def test_what_it_cannot_mean_is_refused(call: Any, says: str) -> None:
    refused(call, says)


def test_where_nothing_can_be_confined_the_command_ends_before_it_loads_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox, "missing", lambda: "bubblewrap (bwrap) is not installed")
    refused(
        lambda: code_execution(["mbpp"], "confined", True),
        "cannot be confined here: bubblewrap (bwrap) is not installed.",
    )
    assert code_execution(["mbpp"], "unsafe", True) == {"mbpp": {"allow_code_execution": "unsafe"}}
    assert code_execution(["mbpp"], "confined", False) == {"mbpp": {"allow_code_execution": True}}
