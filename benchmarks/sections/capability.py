"""The study of capabilities: which few heads carry one, and what else do they serve?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .reading import Results, Row, by_model, pick, study_by
from .writing import NOTHING, few, judged, num, of, span, table

LATER = (
    "There were three draws of masks at first; there are six, and four on other data, since three could not tell most claims on "
    "Gemma. Universal heads are judged by the mean over draws since then, not in every draw. Four draws have no "
    "interval any more, so heads found on other data are not judged."
)
"""What was changed after results had been seen."""
BY_CAPABILITY = ("carries", "specific", "general", "returns")
"""Claims about a capability."""
ALL_MODELS = ("spared", "universal", "alone", "cheaper")
"""Claims about a model, not about a capability."""


def capability(results: Results) -> str:
    found = results.study("study_capability")
    models = by_model(found)
    preset = next(iter(models.values()))["settings"]["preset"]
    k = preset["k"]
    parts = [
        "Which few heads carry a capability, by compressed sensing, and what else do they serve? The claims are those of the "
        "paper on capability localization; thresholds and k were written down before the run "
        f"([claims.json](../lens_heads/studies/capability_paper/claims.json)). {LATER} "
        "Intervals are over draws of masks crossed with "
        "trials; damage is beyond random heads where a claim says so.",
        f"{study_by(found, 'study_capability.json')} Up to {preset['n_select']} trials a capability find {k} heads in each of "
        f"{preset['mask_draws']} draws of {preset['n_masks']} masks; up to {preset['n_test']} others test them, and "
        f"{preset['random_draws']} sets of random heads of all heads and as many of the same layers run on the first "
        f"{preset['random_trials']}.",
        f"### The {k} heads of each capability",
        _by_capability(models),
        _unable(models),
        "### Claims about all of them",
        _claims(models),
        "### Do other masks find the same heads?",
        "Jaccard of the top heads: of a capability by other masks, by chance, and of other capabilities.",
        _draws(models),
        "### Both ways: heads of a capability and of its other data",
        _both_ways(models),
        "### Do the costs of heads add up?",
        "A difference above 0 says that heads stand in for one another: alone each costs less than its part.",
        _together(models),
        "### By size",
        "Models of different families are no scaling law: they differ in more than size.",
        _scale(found["scale"]),
        f"### Methods, on {preset['compared']}",
        "Damage in nats on trials that the heads were not found on, and what the same heads cost the other "
        "capabilities.",
        _methods(models),
        "\n".join(_beside_searches(name, one) for name, one in models.items()),
        "### Fits",
        "Over the draws of masks. Held-out R² is of masks that neither the fit nor its penalty has seen. Near zero or below, the "
        "masks did not say which heads count.",
        _fits(models),
        "\n".join(_fitted(name, one) for name, one in models.items()),
    ]
    return "\n\n".join(part for part in parts if part)


def _draws(models: dict[str, Row]) -> str:
    """How far draws of masks find the same heads, and capabilities too."""
    rows = []
    for name, one in models.items():
        for own in pick(one["agreement"], same=True):
            others = [row["jaccard"] for row in pick(one["agreement"], same=False) if own["a"] in (row["a"], row["b"])]
            between = num(sum(others) / len(others)) if others else NOTHING
            rows.append([name, own["a"], num(own["jaccard"]), num(own["expected_jaccard"]), between])
    return table(["model", "capability", "other draws of masks", "random heads", "other capabilities"], rows)


def _both_ways(models: dict[str, Row]) -> str:
    """Damage by a capability's heads and by those of its other data, on either."""
    rows = []
    for name, one in models.items():
        back = dict.fromkeys(row["heads"] for row in one["spread"] if row["heads"].endswith(OTHER))
        for source in [part for found in back for part in (found.removesuffix(OTHER), found)]:
            cells = [pick(one["spread"], heads=source, on=on) for on in ("own", "other data")]
            rows.append([name, source, *(of(cell[0], "damage", "damage") if cell else NOTHING for cell in cells)])
    return table(["model", "heads of", "damage to the capability", "damage to its other data"], rows)


OTHER = ", other data"


def _together(models: dict[str, Row]) -> str:
    """Damage by heads together, and the sum of what each costs alone."""
    rows = [
        [name, row["capability"], *(of(row, part, part) for part in ("together", "each_alone", "excess"))]
        for name, one in models.items()
        for row in one["additivity"]
    ]
    return table(["model", "capability", "all heads together", "sum of each alone", "difference"], rows)


def _scale(rows: list[Row]) -> str:
    """The share lost by parameters, with the paper's points."""
    columns = ["capability", "model", "parameters", "heads", "share of right answers above chance lost"]
    listed = []
    for row in rows:
        size, share = f"{row['parameters'] / 1e6:,.0f} M", span(row["lost"], row["lost_low"], row["lost_high"])
        listed.append([row["capability"], row["model"], size, f"{row['k']} of {row['heads']}", share])
    return table(columns, listed)


def _by_capability(models: dict[str, Row]) -> str:
    rows = []
    for name, one in models.items():
        for capability in _found(one):
            carries, specific, general, returns = (_claim(one, rule, capability) for rule in BY_CAPABILITY)
            right = carries["found"].split(":")[0].split(",")[0] if carries else NOTHING
            rows.append([name, capability, right, *map(_judged, (carries, specific, general, returns))])
    columns = [
        "right answers, before and after",
        "share lost: do few heads carry it?",
        "cost beyond others' heads, nats",
    ]
    columns += ["the same on other data", "the same of heads found on other data"]
    return table(["model", "capability", *columns], rows)


def _judged(claim: Row | None) -> str:
    return judged(claim) if claim else NOTHING


def _found(one: Row) -> list[str]:
    """The capabilities that have heads, without their other data."""
    return list(dict.fromkeys(fit["capability"] for fit in one["fits"] if not fit["capability"].endswith(OTHER)))


def _claim(one: Row, rule: str, capability: str) -> Row | None:
    return next(iter(pick(one["claims"], id=rule, capability=capability)), None)


def _unable(models: dict[str, Row]) -> str:
    """The capabilities that a model does not have, as the claims say."""
    lacking = {
        name: [
            capability
            for capability in _found(one)
            if "not above chance" in ((_claim(one, "carries", capability) or {}).get("found") or "")
        ]
        for name, one in models.items()
    }
    said = [f"{name} on {' and '.join(tasks)}" for name, tasks in lacking.items() if tasks]
    return f"Not above chance without ablation, so there is nothing to carry: {'; '.join(said)}." if said else ""


def _claims(models: dict[str, Row]) -> str:
    rows: list[list[Any]] = []
    for rule in ALL_MODELS:
        here = {name: pick(one["claims"], id=rule) for name, one in models.items()}
        first = next((claims[0] for claims in here.values() if claims), None)
        if first is not None:
            cells = [f"{claims[0]['found']}; {judged(claims[0])}" if claims else NOTHING for claims in here.values()]
            rows.append([first["claim"], first["paper"], *cells])
    return table(["claim", "paper", *models], rows)


def _methods(models: dict[str, Row]) -> str:
    methods = dict.fromkeys(row["method"] for one in models.values() for row in one["methods"])
    rows = []
    for method in methods:
        cells: list[Any] = []
        for one in models.values():
            found = pick(one["methods"], method=method)
            row = found[0] if found else None
            cells += (
                [row["evaluations"], of(row, "damage", "damage"), of(row, "others", "others")] if row else [NOTHING] * 3
            )
        rows.append([f"`{method}`", *cells])
    columns = [f"{name}: {what}" for name in models for what in ("evaluations", "damage", "to others")]
    return table(["method", *columns], rows)


def _beside_searches(name: str, one: Row) -> str:
    """What the greedy searches find, beside compressed sensing, and what they ask for."""
    (sensed,) = pick(one["methods"], method="css")
    said = [
        f"`{row['method']}` does {row['damage'] / sensed['damage']:.1f} times the damage of `css` with "
        f"{row['evaluations'] / sensed['evaluations']:.1f} times the evaluations"
        for row in one["methods"]
        if row["method"] in ("one_shot", "greedy")
    ]
    return f"- {name}: {'; '.join(said)}."


def _fitted(name: str, one: Row) -> str:
    """How far to trust the fits."""
    low, high = (end(one["fits"], key=lambda fit: fit["held_out_r2"]) for end in (min, max))
    none = dict.fromkeys(fit["capability"] for fit in one["fits"] if not fit["chosen_heads"])
    empty = (
        f" In some draws the lasso chooses no head, so that heads rank by plain differences: {'; '.join(none)}."
        if none
        else ""
    )
    return (
        f"- {name}: held-out R² from {num(low['held_out_r2'])} ({low['capability']}) to {num(high['held_out_r2'])} "
        f"({high['capability']}).{empty}"
    )


def _fits(models: dict[str, Row]) -> str:
    columns = [
        "model",
        "heads of",
        "draws of masks",
        "trials",
        "evaluations",
        "damage by the heads",
        "heads chosen by the lasso",
    ]
    rows = []
    for name, one in models.items():
        for capability in dict.fromkeys(fit["capability"] for fit in one["fits"]):
            fits = pick(one["fits"], capability=capability)
            found = {part: [fit[part] for fit in fits] for part in ("damage", "chosen_heads", "held_out_r2")}
            counts = [len(fits), fits[0]["trials"], _ends(fit["evaluations"] for fit in fits)]
            numbers = [few(min(found["damage"]), max(found["damage"]), 2), _ends(found["chosen_heads"])]
            rows.append(
                [name, capability, *counts, *numbers, few(min(found["held_out_r2"]), max(found["held_out_r2"]), 2)]
            )
    return table([*columns, "held-out R²"], rows)


def _ends(counts: Iterable[int]) -> str:
    """One whole number, or the smallest and the largest of several."""
    found = sorted(set(counts))
    return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"
