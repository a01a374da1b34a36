"""The study as one page: claims, then models beside each other, then each model's own part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from lens_heads import plots, report
from lens_heads.studies.calls import described
from lens_heads.studies.capability_paper import scale
from lens_heads.studies.capability_paper.capabilities import Capability
from lens_heads.studies.capability_paper.claims import published
from lens_heads.studies.capability_paper.finding import CapabilityFinding
from lens_heads.studies.capability_paper.presets import Preset
from lens_heads.studies.verdicts import counted

CLAIMS = (
    "Judged by the number in 'judged by', with its 95 % interval: a claim holds, or does not, if the whole interval says so. "
    "Shares of right answers have intervals no narrower than what so many trials may well not have shown (a share of "
    "1 - 0.025 ** (1 / trials)); other differences are paired, in the metrics of their tasks, and widened for few trials and "
    "few draws of heads. Right answers are counted from chance on."
)
COST = {name: (f"{name}_low", f"{name}_high") for name in ("damage", "random", "beyond_random", "right_lost", "others")}
LOST = {"lost": ("lost_low", "lost_high")}


def page(findings: Sequence[CapabilityFinding]) -> report.Page:
    """The page of what there is so far."""
    plan = findings[0].plan
    sections = [report.Section("The paper's claims", CLAIMS, tables=[_claims(each) for each in findings])]
    sections += [_scale(findings, plan.k)] if len(findings) > 1 else []
    sections += [section for each in findings for section in _model(each)]
    summary = report.Summary(
        model=", ".join(each.model for each in findings),
        trials=f"{plan.n_select} a capability to find its heads, {plan.n_test} others to ablate them on"
        + _shares(plan),
        heads=[
            f"{each.name} {head} ({name})"
            for each in findings
            for name, one in each.scores.items()
            for head in one.top(1)
        ],
        verdict=" ".join(f"{each.model}: {counted(list(each.frames['claims']['verdict']))}." for each in findings),
        figures=[each.generality.plot(title=f"{each.name}: what a capability's heads cost") for each in findings],
        facts={
            "Capabilities": "; ".join(_asked(name, one) for name, one in plan.capabilities.items()),
            "Heads": f"the {plan.k} best by compressed sensing: {plan.n_masks} random masks that ablate "
            f"{plan.sparsity:.0%} of the heads each, a lasso on what they cost",
            "Ablation": f"{plan.kind}, at all positions",
            "Intervals": "95 % bootstrap over trials (and draws of random heads); of coefficients over masks",
        },
    )
    return report.Page("Which few heads carry a capability?", summary, sections)


def _shares(plan: Preset) -> str:
    shares = {name: one.share for name, one in plan.capabilities.items() if one.share != 1}
    return f" ({', '.join(f'{name} {share:g} times as many' for name, share in shares.items())})" if shares else ""


def _asked(name: str, one: Capability) -> str:
    kin = f", other data {described(one.kin)}" if one.kin else ""
    return f"{name}: {described(one.test)}{kin}, {one.metric}"


def _claims(each: CapabilityFinding) -> report.Table:
    shown = each.frames["claims"].rename(columns={"value": "judged by", "holds_if": "holds if"})
    shown.loc[shown["id"].duplicated(), ["paper", "holds if"]] = ""  # The same for every capability.
    columns = ["claim", "paper", "found", "judged by", "low", "high", "verdict", "holds if"]
    return report.Table(shown[columns], f"{each.model}, k = {each.plan.k}", 2, intervals={"judged by": ("low", "high")})


def _scale(findings: Sequence[CapabilityFinding], k: int) -> report.Section:
    table = scale.beside(findings)
    bars = table.rename(columns={"capability": "group", "model": "name", "damage": "value"})
    bars = bars.rename(columns={"damage_low": "low", "damage_high": "high"})
    metrics = [one.metric for one in findings[0].plan.localized.values()]
    several = f"{len(findings)} models" if len(findings) > 2 else "Two models"
    return report.Section(
        "Models beside each other",
        f"{several} of different families are no scaling law: they differ in more than size, and {k} heads are another "
        "share of each. Damage is in the capability's own metric; lost is the share of right answers above chance.",
        figures=[
            plots.drop_bars(bars, f"What a capability's {k} best heads cost it", unit=_unit(metrics), axis="damage")
        ],
        tables=[
            report.Table(
                table,
                "Capabilities and models",
                intervals={"damage": COST["damage"], **LOST},
                formats={"parameters": ",.0f"},
            ),
            report.Table(scale.depths(findings, k), "Do the best heads sit equally deep?"),
        ],
    )


def _unit(metrics: Iterable[str]) -> str:
    """Of damage in these metrics: of log-probabilities in nats."""
    return "nats" if all(metric.endswith("logprob") for metric in metrics) else "of each task's metric"


def _model(each: CapabilityFinding) -> list[report.Section]:
    return [_localization(each), _universal(each), _generality(each), _curves(each), _methods(each)]


def _localization(each: CapabilityFinding) -> report.Section:
    maps = [report.Figure(plots.head_map(scores, f"{name}"), name) for name, scores in each.scores.items()]
    fits = "of masks left out, held_out_r2 is the share of the variance that the heads found predict"
    lost = " ".join(f"{name}: {reason}." for name, reason in each.reasons.items())
    return report.Section(
        f"{each.model}: which heads each capability needs",
        "Change of the metric when a head is ablated, by the regression, beyond that of the heads it left out: orange hurts. "
        f"In the table, {fits}; below 0 they predict worse than the mean. {lost}",
        figures=maps,
        tables=[
            report.Table(each.frames["fits"], "Fits"),
            report.Table(
                each.frames["best_heads"],
                "Best heads: coefficient with its interval over masks, too narrow for a head that was chosen by luck, and "
                "the share of halves of the masks in which its shrunk coefficient is negative. They rank by the shrunk "
                "coefficients of all masks; heads that the lasso left out have 0 and rank by the plain difference",
                intervals={"coefficient": ("low", "high")},
            ),
        ],
    )


def _universal(each: CapabilityFinding) -> report.Section:
    found = each.universal
    text = (
        f"{found!r}. They are reported apart: heads that everything needs say nothing of a capability."
        if found is not None
        else f"There are {len(each.scores)} capabilities, too few to call heads universal ({each.plan.at_least})."
    )
    tables = [report.Table(each.frames["universal"], "Heads among the best")] if found is not None else []
    overlaps = report.Table(each.frames["shared_heads"], "Heads that two capabilities share, against chance")
    return report.Section(f"{each.model}: universal heads", text, tables=[*tables, overlaps])


def _generality(each: CapabilityFinding) -> report.Section:
    spread, unit = each.frames["spread"], _unit(each.generality.metrics.values())
    own = spread[~spread["heads"].str.contains(", specific|universal")]
    bars = pd.DataFrame(
        {
            "group": own["heads"],
            "name": own["on"],
            "value": own["beyond_random"],
            "low": own["beyond_random_low"],
            "high": own["beyond_random_high"],
        }
    )
    return report.Section(
        f"{each.model}: what else the heads serve",
        "Damage on a capability's own trials, on other data of it, and on the mean over unrelated tasks; each less what as "
        "many random heads cost. Means over tasks are over their own metrics.",
        figures=[
            each.generality.plot(),
            plots.drop_bars(bars, "Damage beyond that of random heads", unit=unit, axis="damage beyond random"),
        ],
        tables=[report.Table(spread, "Damage by kind of task", intervals=COST)],
    )


def _curves(each: CapabilityFinding) -> report.Section:
    gsm8k = published()["gsm8k"]
    shown = each.frames["right_answers"]
    wide = shown.pivot(index="capability", columns="k", values="value").loc[list(each.scores)]
    wide.loc["the paper's GSM8K"] = [dict(enumerate(gsm8k)).get(int(str(k))) for k in wide.columns]
    wide = wide.astype(float).rename(columns=lambda k: f"{k} heads").rename_axis("capability").reset_index()
    figures = []
    for name, curve in each.curves.items():
        metric, right = each.plan.capabilities[name].metric, each.plan.capabilities[name].right
        for one in dict.fromkeys((metric, right)):
            figures.append(report.Figure(plots.ablation_curves(curve, one, title=name), plots.METRIC_LABELS[one]))
    return report.Section(
        f"{each.model}: ever more heads",
        figures=figures,
        tables=[
            report.Table(wide, "Right answers by the number of heads ablated"),
            report.Table(shown, "Right answers lost, above chance", intervals={"value": ("low", "high"), **LOST}),
        ],
    )


def _methods(each: CapabilityFinding) -> report.Section:
    table, name = each.frames["methods"], each.plan.compared
    parts = (("own capability", "damage"), ("the others, on the mean", "others"))
    labels = [plots.look(method).label for method in each.methods]
    bars = pd.concat(
        [
            pd.DataFrame({"group": labels, "name": label}).assign(
                value=table[part], low=table[f"{part}_low"], high=table[f"{part}_high"]
            )
            for label, part in parts
        ]
    )
    return report.Section(
        f"{each.model}: methods on one capability, {name}",
        f"Heads from the same trials by every method; {each.plan.k} of them ablated on others. Evaluations are runs over all "
        f"trials that find heads. A method that needs more than {each.plan.most_evaluations} evaluations was left out. Damage in "
        f"{each.compared.metrics[name]}, that of others in their own metrics.",
        figures=[
            plots.drop_bars(
                bars, "What the heads of each method cost", unit=_unit(each.compared.metrics.values()), axis="damage"
            )
        ],
        tables=[report.Table(table, "Methods", intervals=COST)],
    )
