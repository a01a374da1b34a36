"""The study of capabilities: which few heads carry one, and what else do they serve?"""

from __future__ import annotations

from typing import Any

from .reading import Results, Row, pick, study_by
from .writing import NOTHING, judged, num, of, span, table

ALL_MODELS = ("spared", "universal", "alone", "cheaper")
"""Claims about a model, not about a capability."""


def capability(results: Results) -> str:
    found = results.study("study_capability")
    models: dict[str, Row] = found["models"]
    preset = next(iter(models.values()))["settings"]["preset"]
    k = preset["k"]
    masks = f"{preset['n_masks']} masks"
    draws = f", in each of {preset['mask_draws']} draws of masks" if "mask_draws" in preset else ""
    parts = [
        "Which few heads carry a capability, by compressed sensing, and what else do they serve? The claims are "
        f"those of the paper on capability localization. {INTERVALS[bool(draws)]}",
        f"{study_by(found, 'study_capability.json')} Up to {preset['n_select']} trials a capability find {k} heads in "
        f"{masks}{draws}; up to {preset['n_test']} others test them.",
        f"### The {k} heads of each capability",
        _by_capability(models),
        _unable(models),
        "### Claims about all of them",
        _claims(models),
        *_draws(models),
        *_both_ways(models),
        *_together(models),
        *_scale(found["scale"]),
        f"### Methods, on {preset['compared']}",
        "Damage in nats on trials that the heads were not found on, and what the same heads cost the other "
        "capabilities.",
        _methods(models),
        "\n".join(_beside_searches(name, one) for name, one in models.items()),
        "### Fits",
        "Held-out R² is of masks that neither the fit nor its penalty has seen. Near zero or below, the masks did "
        "not say which heads count.",
        _fits(models),
        "\n".join(_fitted(name, one) for name, one in models.items()),
    ]
    return "\n\n".join(part for part in parts if part)


INTERVALS = {
    False: "Intervals are widened for few trials and few draws of random heads.",
    True: "Intervals are over draws of masks crossed with trials; damage is beyond random heads where a claim says so.",
}


def _draws(models: dict[str, Row]) -> list[str]:
    """How far draws of masks find the same heads, and capabilities too; a file of a single draw says nothing about it."""
    rows = []
    for name, one in models.items():
        table_of = one.get("agreement", [])
        for own in pick(table_of, same=True):
            others = [row["jaccard"] for row in pick(table_of, same=False) if own["a"] in (row["a"], row["b"])]
            between = num(sum(others) / len(others)) if others else NOTHING
            rows.append([name, own["a"], num(own["jaccard"]), num(own["expected_jaccard"]), between])
    columns = ["model", "capability", "other draws of masks", "random heads", "other capabilities"]
    text = "Jaccard of the top heads: of a capability by other masks, by chance, and of other capabilities."
    return ["### Do other masks find the same heads?", text, table(columns, rows)] if rows else []


def _both_ways(models: dict[str, Row]) -> list[str]:
    """Damage by a capability's heads and by those of its other data, on either."""
    rows = []
    for name, one in models.items():
        back = dict.fromkeys(row["heads"] for row in one["spread"] if row["heads"].endswith(OTHER))
        for source in [part for found in back for part in (found.removesuffix(OTHER), found)]:
            cells = [pick(one["spread"], heads=source, on=on) for on in ("own", "other data")]
            rows.append([name, source, *(of(cell[0], "damage", "damage") if cell else NOTHING for cell in cells)])
    columns = ["model", "heads of", "damage to the capability", "damage to its other data"]
    return ["### Both ways: heads of a capability and of its other data", table(columns, rows)] if rows else []


OTHER = ", other data"


def _together(models: dict[str, Row]) -> list[str]:
    """Damage by heads together, and the sum of what each costs alone."""
    rows = [
        [name, row["capability"], *(of(row, part, part) for part in ("together", "each_alone", "excess"))]
        for name, one in models.items()
        for row in one.get("additivity", [])
    ]
    columns = ["model", "capability", "all heads together", "sum of each alone", "difference"]
    text = "A difference above 0 says that heads stand in for one another: alone each costs less than its part."
    return ["### Do the costs of heads add up?", text, table(columns, rows)] if rows else []


def _scale(rows: list[Row]) -> list[str]:
    """The share lost by parameters, with the paper's points; old files have only the models' own."""
    if not any("paper" in row["model"] for row in rows):
        return []
    listed = [
        [
            row["capability"],
            row["model"],
            f"{row['parameters'] / 1e6:,.0f} M",
            f"{row['k']} of {row['heads']}",
            _lost(row),
        ]
        for row in rows
    ]
    columns = ["capability", "model", "parameters", "heads", "share of right answers above chance lost"]
    text = "Models of different families are no scaling law: they differ in more than size."
    return ["### By size", text, table(columns, listed)]


def _lost(row: Row) -> str:
    return span(row["lost"], row.get("lost_low"), row.get("lost_high"))


def _by_capability(models: dict[str, Row]) -> str:
    rows = []
    for name, one in models.items():
        capabilities = _found(one)
        for capability in capabilities:
            carries, specific, general = (_claim(one, rule, capability) for rule in ("carries", "specific", "general"))
            right = carries["found"].split(":")[0].split(",")[0] if carries else NOTHING
            rows.append(
                [
                    name,
                    capability,
                    right,
                    *(judged(claim) if claim else NOTHING for claim in (carries, specific, general)),
                ]
            )
    columns = [
        "right answers, before and after",
        "share lost: do few heads carry it?",
        "cost beyond others' heads, nats",
    ]
    return table(["model", "capability", *columns, "the same on other data"], rows)


def _found(one: Row) -> list[str]:
    """The capabilities that have heads, without their other data."""
    return list(dict.fromkeys(fit["capability"] for fit in one["fits"] if not fit["capability"].endswith(OTHER)))


def _claim(one: Row, rule: str, capability: str) -> Row | None:
    """The claim about a capability, which its sentence names."""
    return next(
        (claim for claim in one["claims"] if claim["id"] == rule and capability in claim["claim"].split()), None
    )


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
    empty = f" For {' and '.join(none)} the lasso chooses no head: its heads rank by plain differences." if none else ""
    return (
        f"- {name}: held-out R² from {num(low['held_out_r2'])} ({low['capability']}) to {num(high['held_out_r2'])} "
        f"({high['capability']}).{empty}"
    )


def _fits(models: dict[str, Row]) -> str:
    drawn = any("draw" in fit for one in models.values() for fit in one["fits"])
    rows = []
    for name, one in models.items():
        for fit in one["fits"]:
            draw = [fit["draw"], num(fit["damage"])] if drawn else []
            counts = [fit["trials"], fit["evaluations"], fit["chosen_heads"]]
            rows.append([name, fit["capability"], *draw, *counts, num(fit["held_out_r2"])])
    columns = ["model", "capability", *(["draw of masks", "damage by its heads"] if drawn else [])]
    return table([*columns, "trials", "evaluations", "heads chosen by the lasso", "held-out R²"], rows)
