"""The page and the table of `describe`."""

from __future__ import annotations

from pathlib import Path

from lens_heads.inspection.cards import HeadCards
from lens_heads.report.html import write_report
from lens_heads.report.parts import Figure, Section, Summary, Table
from lens_heads.runs.files import write_atomic


def write(cards: HeadCards, out: Path) -> Path:
    """Write heads.csv (every head) and heads.html (the map, and the heads of each kind), and return the page's path."""
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / "heads.csv", cards.frame.to_csv(index=False))
    counted = ", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in cards.kinds.items() if kind) or "none"
    best = [str(cards.of(kind)["head"].iloc[0]) for kind in cards.kinds if kind]
    about = f"{cards.kinds.get('', 0)} of {len(cards.frame)} heads are of no kind known here. Of a kind: {counted}."
    figure = Figure(cards.plot(), "Every head, coloured by kind. Hover for its scores.")
    summary = Summary(cards.model, "repeated tokens, texts and weights", best, about, figures=[figure])
    sections = [
        Section(
            kind.replace("_", " "),
            f"Best first; the threshold is {cards.meta['thresholds'][kind]:g}.",
            tables=[Table(cards.of(kind), f"{kind.replace('_', ' ')} heads")],
        )
        for kind in cards.kinds
        if kind
    ]
    return write_report(out / "heads.html", f"Kinds of heads in {cards.model}", summary, sections)
