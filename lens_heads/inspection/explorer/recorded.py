"""What an explorer needs where there is no kernel: everything it can show, recorded beforehand, and its script and style."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lens_heads.inspection.explorer.contents import best_heads
from lens_heads.inspection.explorer.rows import prompt, rows, tops
from lens_heads.inspection.look_results import Look

HERE = Path(__file__).parent
TOP = 6
"""Heads of every score that a page holds."""


@cache
def asset(name: str) -> str:
    """The text of `explorer.js` or `explorer.css`."""
    return (HERE / name).read_text(encoding="utf-8")


def start(about: Mapping[str, Any], heads: Sequence[str]) -> dict[str, Any]:
    """The traits of an explorer that was just opened."""
    names = [score["name"] for score in about["scores"]]
    chosen = {"heads": list(heads), "trial": 0, "step": 0, "method": names[0], "across": names[:2][-1], "view": "map"}
    empty = {"look": {}, "rows": b"", "rows_of": {}, "history": [], "busy": "", "failed": ""}
    return {"about": dict(about), **chosen, **empty}


def record(about: Mapping[str, Any], looks: Iterable[Look]) -> dict[str, Any]:
    """A page's data: the traits, and what every look (at least one) holds of its heads. Ready for JSON."""
    bank = []
    for look in looks:
        heads = [str(head) for head in look.heads]
        data = base64.b64encode(rows(look, heads)).decode()
        bank.append({"look": prompt(look), "heads": heads, "tops": tops(look, heads), "rows": data})
    held = {head for one in bank for head in one["heads"]}
    best = next((head for head in best_heads(about, TOP) if head in held), bank[0]["heads"][0])
    traits = start(about, [best])
    return {"traits": {name: value for name, value in traits.items() if name != "rows"}, "bank": bank}


def element(payload: Mapping[str, Any]) -> str:
    """The place of an explorer in a page, which is always light, with its data as inert JSON."""
    data = json.dumps(payload, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f'<div data-lh-theme="light"><script type="application/json" data-explorer>{data}</script></div>'


def module() -> str:
    """The page's script: the module, and a line that starts it wherever there is an `element`."""
    text = asset("explorer.js")
    begin = text.rindex("export default")
    return (
        text[:begin] + "for (const data of document.querySelectorAll('script[data-explorer]')) "
        "offline(data.parentElement, JSON.parse(data.textContent));\n"
    )
