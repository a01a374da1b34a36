"""What the study costs before it runs: trial-passes (one trial under one set of heads) by stage."""

from __future__ import annotations

from lens_heads.heads.geometry import HeadGeometry
from lens_heads.studies.capability_paper.presets import LEAD, PASS, Preset
from lens_heads.studies.capability_paper.stages import Asked, affordable, kin_of, owner


def costs(plan: Preset, asked: Asked, shape: HeadGeometry) -> dict[str, int]:
    """Passes by stage, as if no two sets had the same heads and all trials were used."""
    sizes = {task: len(trials) for task, trials in asked.tests.items()}
    few = {task: min(plan.random_trials, size) for task, size in sizes.items()}
    own, draws = list(plan.localized), {name: _draws(plan, name) for name in asked.selection}
    found = {
        f"heads of {name}": (draws[name] * plan.n_masks + 1) * len(trials) for name, trials in asked.selection.items()
    }
    more, main = [k for k in plan.ks if k != plan.k], plan.mask_draws
    sets = {task: 1 + main * len(own) + draws.get(kin_of(owner(task)), 0) * (owner(task) in own) for task in sizes}
    controls = {name: plan.random_draws * (1 + (name in own)) for name in asked.evaluation}
    found["damage"] = sum(sets[task] * size + controls.get(task, 0) * few[task] for task, size in sizes.items())
    found["curves"] = sum(few[name] * len(more) * (main + plan.curve_draws) for name in own)
    found["each alone"] = sum(few[name] * main * (plan.k - (1 in plan.ks)) for name in own)
    found["candidates"] = sum(sizes[name] * (1 + plan.candidates) for name in asked.evaluation)
    return found | _methods(plan, asked, shape.n_layers * shape.n_heads, sum(sizes[name] for name in asked.evaluation))


def _draws(plan: Preset, name: str) -> int:
    return plan.mask_draws if name == owner(name) else plan.kin_draws


def _methods(plan: Preset, asked: Asked, heads: int, tests: int) -> dict[str, int]:
    """Finding heads by other methods, and ablating them. Regressions share masks; greedy search begins with each head alone."""
    trials = asked.selection[plan.compared]
    listed = affordable(plan, heads, all(trial.needle for trial in trials))
    searches = {"one_shot": heads, "greedy": sum(heads - added for added in range(plan.k))}
    runs = sum(searches[name] for name in listed if name in searches)
    runs -= heads if set(searches) <= set(listed) else 0
    runs += plan.n_masks * len([name for name in listed if name in ("csb", "csl")])
    found = {"methods": runs * len(trials), "methods, ablated": tests * len([name for name in listed if name != LEAD])}
    return found | ({PASS: len(trials)} if PASS in listed else {})
