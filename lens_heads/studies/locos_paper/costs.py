"""What a preset of the LOCOS study will run, before it starts."""

from __future__ import annotations

from lens_heads.evidence.head_sets import capped
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.studies.locos_paper.presets import ATTENTION, HEADLINE_METHODS, RIVALS, Preset


def costs(plan: Preset, shape: HeadGeometry) -> dict[str, int]:
    """Trial-passes by stage: one trial under one set of heads each. At most, where precision may stop a stage earlier.

    Patching and recovery count a pass per head (or set) and trial, though several heads share one.
    """
    heads, tests = shape.n_layers * shape.n_heads, len(plan.tested())
    sizes, others = len(capped(plan.ks, shape)), {**plan.spared, **plan.downstream}
    counts = {task: len(plan.trials(call)) for task, call in others.items()}
    few = plan.draws * min(plan.few, tests)
    rivals = len(RIVALS) * bool(plan.rivals)
    methods = len({name for name in HEADLINE_METHODS if name in plan.methods}) + 1 + rivals
    controls = sum({"bottom": 1, "random": plan.seeds, "random_like": plan.seeds}[name] for name in plan.controls)
    selected = len(plan.trials(plan.select))
    return {
        "detection": selected,
        "choice": min(plan.choose, selected) * (2 + (1 + len(ATTENTION)) * sizes),
        "rivals": min(plan.rivals, selected) * 2 * heads,
        "headline": min(plan.max_trials, tests) * (2 + methods) + 2 * few,
        "other tasks": sum(2 * n + plan.draws * min(plan.few_others, n) for n in counts.values()),
        "ablation": min(plan.curve_trials, tests) * (1 + (len(plan.ablated) + 1 + rivals + controls) * (sizes + 1)),
        "texts": sum(2 * min(plan.text_trials, n) for n in (tests, *counts.values())),
        "patching": min(plan.cri_trials, tests) * heads,
        "recovery": min(plan.recovery_trials, tests) * (2 + 3 * plan.recovery_draws),
        "reading": 3 * selected if plan.read_heads else 0,
    }
