"""Explorers on pages: a section of a stored one, the page of a whole run folder, and that of a `Why`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from lens_heads.inspection.explorer.stored import folders, stored
from lens_heads.inspection.explorer.trying import Tried
from lens_heads.inspection.why import Why
from lens_heads.report.html import write_report
from lens_heads.report.parts import Card, Section, Summary, Table
from lens_heads.runs.typed import typed

if TYPE_CHECKING:  # The widget needs an optional package.
    from lens_heads.inspection.explorer.widget import Explorer

MOST = 12
"""Tokens in the table of a `Why`."""

ABOUT = (
    "Click a head: the prompt is coloured by what it contributes to the answer from each token (blue raises the token's logit, "
    "orange lowers it), beside where it looks. Shift adds heads, arrows move, [ and ] change the token of the answer."
)


def section(folder: Path, title: str) -> Section:
    """The section of an explorer that a run has stored."""
    return Section(title, ABOUT, explorer=stored(folder))


def write(run: Path, to: Path | None = None) -> Path:
    """Write one page with every explorer of a run folder (default: `explorer.html` in it), and return its path.

    FileNotFoundError for no such folder, and for one without an explorer.
    """
    if not run.is_dir():
        raise FileNotFoundError(f"{run} is no folder: give the run folder of a score, demo, study or bench command")
    found = folders(run)
    if not found:
        raise FileNotFoundError(
            f"{run} holds no explorer: the commands score (with --out), demo, study and bench store one. Of a run from Python, "
            "lh.explore(model, trials, scores) makes one, and lh.report.write_explorer its page"
        )
    sections, models, trials = [], {}, 0
    for folder in found:
        data = stored(folder)
        about = data["traits"]["about"]
        where = folder.parent.relative_to(run).as_posix()
        sections.append(Section(about["model"] if where == "." else f"{about['model']}: {where}", ABOUT, explorer=data))
        models[about["model"]] = None
        trials += len(data["bank"])
    names = ", ".join(models)
    summary = Summary(
        names,
        trials,
        [],
        f"What the best heads of {names} read and write, on {'one prompt' if trials == 1 else f'{trials} prompts'}.",
    )
    return write_report(to or run / "explorer.html", "Heads, explored", summary, sections)


@typed
def write_explorer(explorer: Explorer, to: str | Path, *, title: str = "Heads, explored") -> Path:
    """Write what an explorer shows as a page that needs no kernel, and return its path.

    It holds the trials that were opened, with the chosen heads and the best of every score, and the history.

    `to`: the file. `title`: of the page.

    Example:
        >>> lh.report.write_explorer(lh.explore(model, trials), "heads.html").name
        'heads.html'
    """
    data = explorer.payload
    model, trials = data["traits"]["about"]["model"], len(data["bank"])
    summary = Summary(
        model, trials, data["traits"]["heads"], f"What heads of {model} read and write, on {trials} prompts."
    )
    return write_report(to, title, summary, [Section(model, ABOUT, explorer=data)])


@typed
def write_why(why: Why, to: Path) -> Path:
    """Write the page of a `Why`: its sentences, its heads, the explorer, and what they read; return its path.

    `why`: the answer. `to`: the file.

    Example:
        >>> few = lh.Controls("random", draws=1)
        >>> found = lh.why(model, "xyz (b=B) xyz ?", "B", k=2, kind="zero", controls=few, max_new_tokens=1)
        >>> lh.report.write_why(found, Path("why.html")).name
        'why.html'
    """
    tried, columns = why.tried, {"contribution": "contribution (logits)", "needle": "from the needle"}
    heads = Table(why.frame.rename(columns=columns), "The heads, and what they read and raise", 2)
    tokens = Table(why.tokens.head(MOST), f"The {MOST} tokens that contribute most through these heads (phi: logits)")
    texts = pd.DataFrame({"": ["as it is", "without these heads"], "text": [tried.text_before, tried.text_after]})
    summary = Summary(
        model=why.shape.name,
        trials=f"one prompt of {len(why.trial)} tokens; what holds here may not hold for another",
        heads=why.heads,
        verdict=" ".join(why.sentences),
        cards=[
            Card("log-probability of the answer", tried.before),
            Card("without these heads", tried.after),
            *_random(tried),
        ],
        facts={
            "Ablation": f"{tried.kind}, at all positions and while decoding{why.reference}",
            "Unit": "nats per token of the answer",
        },
    )
    sections = [
        Section("See the heads", ABOUT, explorer=why.payload),
        Section("Which heads, from which tokens", tables=[heads, tokens]),
        Section("What the model writes", tables=[texts]),
    ]
    return write_report(to, f"Why “{why.trial.answer}”?", summary, sections)


def _random(tried: Tried) -> list[Card]:
    """The card of random heads; a range is no interval, so it is a note."""
    if tried.random is None:
        return []
    note = f"{tried.random_low:.2f} to {tried.random_high:.2f} over {tried.draws} sets"
    return [Card("without random heads", tried.random, note=note)]
