"""The page of the study of capabilities: the answer, the claims, the head maps, models compared, then each model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from lens_heads import plots, report
from lens_heads.studies.calls import described
from lens_heads.studies.capability_paper.capabilities import Capability
from lens_heads.studies.capability_paper.finding import CapabilityFinding, beside, depths
from lens_heads.studies.capability_paper.presets import Preset
from lens_heads.studies.claims import HOLDS, published
from lens_heads.studies.pages import bars, claims_table, counted, folded, table

CLAIMS = (
    'A claim holds, or does not hold, if the whole 95 % interval of the number in "judged by" says so. Right answers are counted '
    "above chance. Intervals of their shares are widened to allow for what so few trials may have missed (at least "
    "1 - 0.025 ** (1 / trials) on either side). Other differences are paired, in the metric of each task, with intervals widened "
    "for few trials and few draws of heads."
)
COST = ("damage", "random", "beyond_random")


def page(findings: Sequence[CapabilityFinding]) -> report.Page:
    """The page for everything found so far."""
    plan = findings[0].plan
    claims = [claims_table(each.claims, f"{each.model}, k = {each.plan.k}") for each in findings]
    sections = [report.Section("The paper's claims", CLAIMS, tables=claims), _maps(findings)]
    sections += [_scale(findings, plan.k)] if len(findings) > 1 else []
    for each in findings:
        sections += [_localization(each), _universal(each), _generality(each), _curves(each), _methods(each)]
    summary = report.Summary(
        model=", ".join(each.model for each in findings),
        trials=f"{plan.n_select} per capability to find its heads, {plan.n_test} others to ablate them on{_shares(plan)}",
        heads=[
            f"{each.name} {head} ({name})"
            for each in findings
            for name, one in each.scores.items()
            for head in one.top(1)
        ],
        verdict=" ".join(map(_sentence, findings)),
        figures=[
            each.generality.plot(title=f"{each.name}: the cost of ablating each capability's heads")
            for each in findings
        ],
        facts={
            "Claims": "; ".join(f"{each.model}: {counted(each.claims)}" for each in findings),
            "Capabilities": "; ".join(_asked(name, one) for name, one in plan.capabilities.items()),
            "Heads": f"the top {plan.k} by compressed sensing: {plan.n_masks} random masks, each ablating {plan.sparsity:.0%} of "
            "the heads, and a lasso regression on their cost",
            "Ablation": f"{plan.kind}, at all positions",
            "Intervals": "95 % bootstrap over trials (and draws of random heads); for coefficients, over masks",
        },
    )
    return report.Page("Which few heads carry a capability?", summary, sections)


def _sentence(each: CapabilityFinding) -> str:
    """One model's answer: the capabilities that few heads carry, out of those asked."""
    verdicts = each.claims.loc[each.claims["id"] == "carries", "verdict"]
    names = [name for name, verdict in zip([*each.scores, *each.reasons], verdicts, strict=True) if verdict == HOLDS]
    carried = f": {', '.join(names)}" if names else ""
    return (
        f"{each.model}: {each.plan.k} heads demonstrably carry {len(names)} of {len(verdicts)} capabilities{carried}."
    )


def _shares(plan: Preset) -> str:
    shares = {name: one.share for name, one in plan.capabilities.items() if one.share != 1}
    return f" ({', '.join(f'{name}: {share:g} times as many' for name, share in shares.items())})" if shares else ""


def _asked(name: str, one: Capability) -> str:
    kin = f", other data {described(one.kin)}" if one.kin else ""
    return f"{name}: {described(one.test)}{kin}, {one.metric}"


def _maps(findings: Sequence[CapabilityFinding]) -> report.Section:
    """Head maps of all capabilities and models, side by side."""
    return report.Section(
        "Which heads each capability needs",
        "The change of the metric when a head is ablated, by regression, relative to heads that the regression did not "
        "choose. Orange hurts.",
        figures=[
            plots.head_map(scores, f"{each.name}: {name}") for each in findings for name, scores in each.scores.items()
        ],
        side_by_side=True,
    )


def _scale(findings: Sequence[CapabilityFinding], k: int) -> report.Section:
    models = beside(findings)
    unit = _unit(one.metric for one in findings[0].plan.localized.values())
    rows = bars(models, models["capability"], models["model"], "damage")
    figure = plots.drop_bars(rows, f"The cost of ablating each capability's top {k} heads", unit=unit, axis="damage")
    several = f"{len(findings)} models" if len(findings) > 2 else "Two models"
    return folded(
        "Models compared",
        f"{several} of different families do not make a scaling law: they differ in more than size, and {k} heads are a "
        "different share of each. Damage is in the capability's own metric; lost is the share of right answers above chance.",
        figures=[figure],
        tables=[
            table(models, "Capabilities and models", "damage", "lost", formats={"parameters": ",.0f"}),
            table(depths(findings, k), "Do the top heads sit at the same depth?"),
        ],
    )


def _unit(metrics: Iterable[str]) -> str:
    """The unit of damage: nats if all metrics are log-probabilities."""
    return "nats" if all(metric.endswith("logprob") for metric in metrics) else "of each task's metric"


def _localization(each: CapabilityFinding) -> report.Section:
    lost = " ".join(f"{name}: {reason}." for name, reason in each.reasons.items())
    return folded(
        f"{each.model}: how well masks find the heads",
        "held_out_r2 is the share of the variance of held-out masks that the heads predict; below 0, they predict worse than the "
        f"mean. {lost}",
        tables=[
            table(each.frames["fits"], "Fits"),
            table(
                each.frames["best_heads"],
                "Top heads. The coefficient's interval is over masks, and too narrow for a head chosen by luck. Stability is the "
                "share of halves of the masks with a negative lasso coefficient. Heads rank by their lasso coefficients over all "
                "masks; heads with a coefficient of 0 rank by the plain difference",
                "coefficient",
            ),
        ],
    )


def _universal(each: CapabilityFinding) -> report.Section:
    found = each.universal
    text = (
        f"{found!r}. They are reported separately: heads that everything needs say nothing about one capability."
        if found is not None
        else f"Capabilities with heads: {len(each.scores)}; calling a head universal takes at least {each.plan.at_least}."
    )
    tables = [table(each.frames["universal"], "Heads among the top k")] if found is not None else []
    tables.append(table(each.frames["shared_heads"], "Heads that two capabilities share, compared with chance"))
    return folded(f"{each.model}: universal heads", text, tables=tables)


def _generality(each: CapabilityFinding) -> report.Section:
    spread, unit = each.frames["spread"], _unit(each.generality.metrics.values())
    own = spread[~spread["heads"].str.contains(", specific|universal")]
    rows = bars(own, own["heads"], own["on"], "beyond_random")
    return folded(
        f"{each.model}: what else the heads serve",
        "Damage on a capability's own trials, on other data of it, and averaged over unrelated tasks, minus the damage by the "
        "same number of random heads. Each task counts in its own metric.",
        figures=[plots.drop_bars(rows, "Damage beyond that of random heads", unit=unit, axis="damage beyond random")],
        tables=[table(spread, "Damage by kind of task", *COST, "right_lost")],
    )


def _curves(each: CapabilityFinding) -> report.Section:
    gsm8k, shown = published(__name__)["gsm8k"], each.frames["right_answers"]
    wide = shown.pivot(index="capability", columns="k", values="value").loc[list(each.scores)]
    wide.loc["the paper's GSM8K"] = pd.Series(gsm8k).reindex(wide.columns)
    wide = wide.rename(columns=lambda k: f"{k} heads").rename_axis("capability").reset_index()
    figures = []
    for name, curve in each.curves.items():
        one = each.plan.capabilities[name]
        for metric in dict.fromkeys((one.metric, one.right)):
            figures.append(report.Figure(plots.ablation_curves(curve, metric, title=name), plots.METRIC_LABELS[metric]))
    return folded(
        f"{each.model}: ablating more heads",
        figures=figures,
        tables=[
            table(wide, "Right answers by number of ablated heads"),
            table(shown, "Right answers lost, above chance", "value", "lost"),
        ],
        side_by_side=True,
    )


def _methods(each: CapabilityFinding) -> report.Section:
    methods, name = each.frames["methods"], each.plan.compared
    labels = [plots.look(method).label for method in each.methods]
    parts = {"damage": "own capability", "others": "mean of the others"}
    rows = pd.concat([bars(methods, labels, label, part) for part, label in parts.items()])
    unit = _unit(each.compared.metrics.values())
    return folded(
        f"{each.model}: methods compared on {name}",
        f"Every method finds heads on the same trials; its top {each.plan.k} are ablated on others. An evaluation is one run "
        f"over all selection trials; methods that need more than {each.plan.most_evaluations} were skipped. Damage is in "
        f"{each.compared.metrics[name]}, that of others in their own metrics.",
        figures=[plots.drop_bars(rows, "The cost of ablating each method's heads", unit=unit, axis="damage")],
        tables=[table(methods, "Methods", *COST, "others")],
    )
