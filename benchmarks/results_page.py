"""RESULTS.md: every table that was measured, written from the files in benchmarks/results. No number in it is typed by hand.

Run: python benchmarks/results_page.py            writes benchmarks/RESULTS.md
     python benchmarks/results_page.py --check    exits with 1 where that file is out of date
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sections import (
    capability,
    choosing,
    costs,
    demo,
    deploying,
    families,
    fragile,
    kinds,
    locos,
    measured,
    questions,
    ranking,
)
from sections.reading import Results
from sections.writing import anchor

HERE = Path(__file__).parent

SECTIONS = {
    "Does the question decide?": questions.questions,
    "Families of models": families.families,
    "Study: choices": choosing.choosing,
    "Study: LOCOS": locos.locos,
    "Study: fragile tasks": fragile.fragile,
    "Study: capabilities": capability.capability,
    "Ranking methods": ranking.ranking_methods,
    "Heads found by training": deploying.trained,
    "Task vectors": deploying.injecting,
    "Going on without the other heads": deploying.deploying,
    "Demo": demo.demo,
    "Kinds of heads": kinds.kinds,
    "Circuits of two tasks": kinds.circuits,
    "Activation patching": measured.patching,
    "Sparse recovery of planted heads": measured.recovery,
    "Localizing heads of a real model": measured.localize,
    "The cost of a mask": measured.masks,
    "The cost of ablating sets of heads": costs.ablating,
    "The cost of a scoring pass": costs.score_pass,
    "Long prompts": costs.long_context,
    "On a GPU": costs.gpu,
    "Several workers": costs.workers,
    "What a run costs, planned and measured": costs.planning,
    "Coverage of the intervals": measured.coverage,
    "bfloat16 against float32": measured.half_precision,
    "Import time": measured.import_time,
    "What the packaged models can do": measured.capabilities,
}

HEAD = """# Results

<!-- Written by `python benchmarks/results_page.py`. Do not edit: change the script, or measure again. -->

A script writes this page from the files in [results](results), so no number is typed by hand. To update a section, run the
command it names, then `python benchmarks/results_page.py`. The tests fail while page and files differ.

Brackets hold 95 % intervals. The packaged models are small and the trials few: read the tables as evidence about these models,
not about large ones. Log-probabilities are of the gold answer, in nats per token.

**BOS.** In every section but "Study: choices", prompts of SmolLM2 and Qwen without a chat template began with a BOS, which these
models never saw; Gemma's begin with its own. `load_model(prepend_bos=True)` makes such prompts; by default they begin as the
model knows it.

**Retrieval** is the packaged trials with one needle, in every section but the first two. They
[do not need their question](#does-the-question-decide).
"""


def page(results: Results) -> str:
    """The whole page."""
    contents = "\n".join(f"- [{title}](#{anchor(title)})" for title in SECTIONS)
    written = [f"## {title}\n\n{section(results)}" for title, section in SECTIONS.items()]
    return "\n\n".join([HEAD.strip(), contents, *written]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where the page is out of date")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="the folder of measured files")
    parser.add_argument("--to", type=Path, default=HERE / "RESULTS.md", help="the page")
    args = parser.parse_args()
    text = page(Results(args.results))
    if not args.check:
        args.to.write_text(text, encoding="utf-8")
    elif not args.to.exists() or args.to.read_text(encoding="utf-8") != text:
        sys.exit(f"{args.to} is out of date: run python benchmarks/results_page.py")


if __name__ == "__main__":
    main()
