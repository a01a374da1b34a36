"""The study of capabilities: which few heads carry one, and what else do they serve?"""

from __future__ import annotations

from typing import Any

from .reading import Results, Row, pick, study_by
from .writing import NOTHING, judged, num, of, table

ALL_MODELS = ("spared", "universal", "cheaper")
"""Claims about a model, not about a capability."""


def capability(results: Results) -> str:
    found = results.study("study_capability")
    models: dict[str, Row] = found["models"]
    preset = next(iter(models.values()))["settings"]["preset"]
    k = preset["k"]
    parts = [
        "Which few heads carry a capability, by compressed sensing, and what else do they serve? The claims are "
        "those of the paper on capability localization. Intervals are widened for few trials and few draws of random "
        "heads.",
        f"{study_by(found, 'study_capability.json')} Up to {preset['n_select']} trials a capability find {k} heads in "
        f"{preset['n_masks']} masks; up to {preset['n_test']} others test them.",
        f"### The {k} heads of each capability",
        _by_capability(models),
        _unable(models),
        "### Claims about all of them",
        _claims(models),
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


def _by_capability(models: dict[str, Row]) -> str:
    rows = []
    for name, one in models.items():
        capabilities = [fit["capability"] for fit in one["fits"]]
        for capability in capabilities:
            carries, specific, general = (_claim(one, rule, capability) for rule in ("carries", "specific", "general"))
            right = carries["found"].split(":")[0] if carries else NOTHING
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


def _claim(one: Row, rule: str, capability: str) -> Row | None:
    """The claim about a capability, which its sentence names."""
    return next(
        (claim for claim in one["claims"] if claim["id"] == rule and capability in claim["claim"].split()), None
    )


def _unable(models: dict[str, Row]) -> str:
    """The capabilities that a model does not have, as the claims say."""
    lacking = {
        name: [
            fit["capability"]
            for fit in one["fits"]
            if "not above chance" in ((_claim(one, "carries", fit["capability"]) or {}).get("found") or "")
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
    none = [fit["capability"] for fit in one["fits"] if not fit["chosen_heads"]]
    empty = f" For {' and '.join(none)} the lasso chooses no head: its heads rank by plain differences." if none else ""
    return (
        f"- {name}: held-out R² from {num(low['held_out_r2'])} ({low['capability']}) to {num(high['held_out_r2'])} "
        f"({high['capability']}).{empty}"
    )


def _fits(models: dict[str, Row]) -> str:
    rows = [
        [name, fit["capability"], fit["trials"], fit["evaluations"], fit["chosen_heads"], num(fit["held_out_r2"])]
        for name, one in models.items()
        for fit in one["fits"]
    ]
    return table(["model", "capability", "trials", "evaluations", "heads chosen by the lasso", "held-out R²"], rows)
