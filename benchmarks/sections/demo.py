"""The demo: the first part of the study of LOCOS, on a few trials."""

from __future__ import annotations

from .locos import answers, claims_table, costs_at_k, sizes
from .reading import Results, by_model, study_by


def demo(results: Results) -> str:
    found = results.study("demo")
    models = by_model(found)
    preset = next(iter(models.values()))["settings"]["preset"]
    return "\n\n".join(
        [
            "What `lens-heads demo` shows: the first part of the study of LOCOS, on trials with other needles "
            "and names than those that chose the heads. `--full` runs more trials with every method and control. The trials do "
            "not need their question (see [the study](#study-locos)).",
            f"{study_by(found, 'demo.json')} {preset['select'][1]['n']} trials choose the heads. {sizes(models)}",
            claims_table(models),
            "What k heads cost, nats:",
            costs_at_k(models),
            answers(models),
        ]
    )
