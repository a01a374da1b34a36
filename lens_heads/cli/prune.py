"""`lens-heads prune`: write a checkpoint without some heads, and say what is saved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lens_heads.cli import options as cli_options
from lens_heads.cli.loading import Loading, loads
from lens_heads.cli.options import Model
from lens_heads.runs.showing import visible


@loads
def prune(
    model: Model,
    to: Annotated[Path, typer.Argument(help="Folder for the checkpoint; it must not exist, or be empty.")],
    heads: Annotated[str | None, typer.Option(help="Comma-separated query heads, such as L5H1,L7H0.")] = None,
    scores: Annotated[Path | None, typer.Option(help="A score file, of which the lowest heads are pruned.")] = None,
    k: Annotated[
        int | None,
        typer.Option("-k", help="With --scores: how many heads (with --remove: kv heads of each layer); default: 1."),
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Take whole groups out; otherwise heads are zeroed.")
    ] = False,
    *,
    loading: Loading,
) -> None:
    """Save a model without some heads, for any loader, and print its size and speed before and after."""
    from lens_heads.deploy.prune import check_target
    from lens_heads.deploy.prune import prune as pruned
    from lens_heads.deploy.speed import prefill_ratio
    from lens_heads.heads.scores import HeadScores
    from lens_heads.model.load import load_model
    from lens_heads.runs import checks

    if (heads is None) == (scores is None):
        raise ValueError("pass either --heads L5H1,L7H0 or --scores FILE with -k")
    if k is not None and scores is None:
        raise ValueError(f"-k {k} needs --scores, of which it takes the lowest: --heads names the heads themselves")
    # All that can be wrong before the model is loaded.
    lowest = checks.whole_number("k", 1 if k is None else k)
    ranking = None if scores is None else HeadScores.load(scores)
    named = None if heads is None else cli_options.heads(heads)
    check_target(to)
    loaded = loading.load(model)
    chosen: Any = _lowest(loaded, ranking, scores, lowest, remove) if named is None else named
    found = pruned(loaded, chosen, to, how="remove" if remove else "zero")
    again = {name: value for name, value in loading.options.items() if name != "revision"}  # It is a local folder now.
    ratio = prefill_ratio(loaded, load_model(found.path, **again))
    sizes = " -> ".join(f"{each / 2**20:,.1f} MiB" for each in found.bytes)
    parameters = " -> ".join(f"{each:,}" for each in found.parameters)
    typer.echo(
        visible(f"Heads pruned: {len(found.heads)}; {parameters} parameters ({sizes}); prefill {ratio:.2f} of before")
    )
    typer.echo(visible(f"Checkpoint: {found.path}"))


def _lowest(model: Any, scores: Any, file: Path | None, k: int, remove: bool) -> list[Any]:
    """The k lowest heads of a ranking, or the k lowest kv groups of each layer."""
    from lens_heads.deploy.prune import lowest_groups
    from lens_heads.model.belonging import check_scores_of
    from lens_heads.model.geometry import head_geometry

    shape = head_geometry(model)
    if remove:
        return list(lowest_groups(scores, shape, k=k))
    shape.check_scores(scores, f"ranking {file}")
    check_scores_of(model, {str(file): scores})
    return list(scores.bottom(k))
