"""`lens-heads explore` and `lens-heads why`: heads to look into, of a stored run or for one's own prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lens_heads.cli.loading import Loading, loads
from lens_heads.cli.options import Model, NewTokens
from lens_heads.runs.showing import visible

Open = Annotated[bool, typer.Option("--open", help="Show the page in the browser.")]


def explore(
    run: Annotated[Path, typer.Argument(help="Run folder of score (with --out), demo, study or bench.")],
    to: Annotated[
        Path | None, typer.Option("--to", help="The page to write (default: explorer.html in the folder).")
    ] = None,
    open_: Open = False,
) -> None:
    """Write one page on which the best heads of a stored run can be explored: what they read and write, prompt by prompt."""
    from lens_heads.report import explored

    _written(explored.write(run, to), open_)


@loads
def why(
    model: Model,
    prompt: Annotated[
        str, typer.Option(help="The prompt: a text, or a file that holds it (without its last line break).")
    ],
    answer: Annotated[str | None, typer.Option(help="What should follow (default: what the model writes).")] = None,
    needle: Annotated[str | None, typer.Option(help="The part of the prompt that holds the answer.")] = None,
    question: Annotated[str | None, typer.Option(help="The part of the prompt that asks.")] = None,
    k: Annotated[int, typer.Option("-k", help="Number of heads to name and to ablate.")] = 5,
    kind: Annotated[str, typer.Option(help="Ablation: mean or zero.")] = "mean",
    chat: Annotated[bool, typer.Option("--chat", help="Wrap the prompt in the model's chat template.")] = False,
    draws: Annotated[int, typer.Option(help="Sets of random heads beside the ablation.")] = 40,
    max_new_tokens: NewTokens = 20,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the page, why.html.")] = Path("runs/why"),
    open_: Open = False,
    *,
    loading: Loading,
) -> None:
    """Say which heads write an answer to your own prompt, from which tokens, and what is left without them."""
    from lens_heads.heads.controls import Controls
    from lens_heads.inspection.why import check_asked
    from lens_heads.inspection.why import why as explained
    from lens_heads.report import explored, tables
    from lens_heads.runs import checks
    from lens_heads.runs.files import check_place

    # All that can be wrong before the model is loaded.
    checks.one_of("--kind", kind, ("mean", "zero"))
    text = _text(prompt)
    controls = Controls("random", draws)
    check_asked(text, answer, needle, question, k, kind, max_new_tokens)
    check_place(out)
    loaded = loading.load(model)
    options = {"k": k, "kind": kind, "chat": chat, "controls": controls, "max_new_tokens": max_new_tokens}
    found = explained(loaded, text, answer, needle=needle, question=question, **options)  # type: ignore[arg-type]  # checked there
    typer.echo(visible(found, keep="\n"))
    tables.show(tables.why(found.frame, f"Why “{found.trial.answer}”?"))
    _written(explored.write_why(found, out / "why.html"), open_)


_TEXTS = (".txt", ".md", ".text", ".json", ".jsonl")
"""What the names of files of text end in."""


def _text(given: str) -> str:
    """The prompt, or the text of the file of that name without its last line break. ValueError for what can only be a file."""
    from lens_heads.runs.reading import read_text

    try:
        is_file, is_folder = Path(given).is_file(), Path(given).is_dir()
    except (OSError, ValueError):  # Too long for a name, or no name at all.
        is_file = is_folder = False
    if is_file:
        return read_text(Path(given)).removesuffix("\n").removesuffix("\r")
    if is_folder or (len(given.split()) == 1 and Path(given).suffix in _TEXTS):
        raise ValueError(f"--prompt {given}: there is no such file: correct its name, or pass the text of the prompt")
    return given


def _written(page: Path, show: bool) -> None:
    typer.echo(visible(f"Page: {page}"))
    if show:
        typer.launch(page.resolve().as_uri())
