"""`lens-heads describe`: what kind of head every head is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lens_heads.cli import options as cli_options
from lens_heads.cli.loading import Loading, loads
from lens_heads.cli.options import MODEL


@loads
def describe(
    model: Annotated[str, typer.Argument(help=MODEL)],
    heads: Annotated[
        str | None, typer.Option(help="Comma-separated heads such as L5H1 (default: those with a kind).")
    ] = None,
    text: Annotated[Path | None, typer.Option(help="A file whose text is read in place of the packaged one.")] = None,
    scores: Annotated[list[Path] | None, typer.Option(help="A score file to show beside, repeatable.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for heads.csv (all) and heads.html (a map).")
    ] = None,
    *,
    loading: Loading,
) -> None:
    """Say what every head does: induction, previous token, copying, sink, ..., and which tokens it promotes."""
    from lens_heads.heads.scores import HeadScores
    from lens_heads.inspection.cards import describe as described
    from lens_heads.inspection.cards import named_scores
    from lens_heads.report import kinds, tables
    from lens_heads.runs.files import check_place
    from lens_heads.runs.reading import read_text

    # All that can be wrong before the model is loaded.
    further = [HeadScores.load(path) for path in scores or ()]
    named_scores(further or None)
    written = None if text is None else read_text(text)
    if written is not None and not written.strip():
        raise ValueError(f"--text {text} is empty: write the text to be read there")
    chosen = None if heads is None else [str(head) for head in cli_options.heads(heads)]
    if out is not None:
        check_place(out)
    loaded = loading.load(model)
    cards = described(loaded, None if out else chosen, text=written, rankings=further or None)
    tables.show(tables.cards(cards, chosen))
    if out is not None:
        kinds.write(cards, out)
    cli_options.say(", ".join(f"{n} {kind or 'without a kind'}" for kind, n in cards.kinds.items()), out)
