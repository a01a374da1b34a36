"""`lens-heads bench`: which ranking method finds the heads that matter, and at what cost?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lens_heads.cli import options as cli_options
from lens_heads.cli.loading import Sharing, loads
from lens_heads.cli.options import Folder, Models, With
from lens_heads.cli.study import Plan


@loads
def bench(
    model: Models = None,
    task: Annotated[
        list[str] | None,
        typer.Option(
            "--task",
            "-t",
            help="retrieval, choice, ioi, arithmetic, induction, capitals, copy_colors, greater_than, or any task with halves; "
            "repeatable.",
        ),
    ] = None,
    with_: With = None,
    methods: Annotated[str, typer.Option(help="Comma-separated methods, or 'all'.")] = "all",
    preset: Annotated[str, typer.Option(help="default, quick, or thorough (hours).")] = "default",
    plan: Plan = False,
    out: Folder = Path("runs/bench"),
    *,
    loading: Sharing,
) -> None:
    """Rank the heads by every method, judge all on the same other trials, and say which to use for which budget."""
    from lens_heads.studies.ranking_methods.recommend import GOALS, recommend
    from lens_heads.studies.ranking_methods.study import bench as run
    from lens_heads.studies.runner import MODELS

    chosen, given, asked = cli_options.methods(methods), model or MODELS, task or ["retrieval"]
    cli_options.once("--task", asked)
    with loading.part(out):
        more = {"preset": preset, "out": out, "arguments": cli_options.options(with_), "plan": plan}
        found = run(given, asked, chosen, **more, **loading.all_options)
    if not plan:
        for by, goal in GOALS.items():
            typer.echo(f"{goal.title}:\n{recommend(found, by=by)}")
        typer.echo(f"Report: {out / 'report.html'}")
