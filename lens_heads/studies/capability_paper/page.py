"""The page of the study of capabilities: the answer, the claims, the head maps, models compared, then each model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from lens_heads import plots, report
from lens_heads.studies.capability_paper.capabilities import Capability
from lens_heads.studies.capability_paper.claims import registered
from lens_heads.studies.capability_paper.finding import CapabilityFinding, TaskMap, beside, depths
from lens_heads.studies.capability_paper.presets import Preset
from lens_heads.studies.claims import HOLDS, published
from lens_heads.studies.pages import bars, claims_table, counted, folded, table
from lens_heads.studies.presets import described

CLAIMS = (
    'A claim holds, or does not hold, if the whole 95 % interval of the number in "judged by" says so (for few heads, also the '
    "rank among random ones). Intervals are over trials, in whole groups, and over draws of masks, each of which finds its own "
    "heads. Where a claim cannot be told, the page says how many trials and draws would have told, if the numbers seen are "
    "the true ones. p is one-sided. Capabilities that the unablated model does not have are not judged. "
    "Retrieval is the packaged trials, which do not need their question."
)
COST = ("damage", "random", "beyond_random")


def page(findings: Sequence[CapabilityFinding]) -> report.Page:
    """The page for everything found so far."""
    plan, first = findings[0].plan, report.Table(registered(findings[0].plan), "Written down before the run")
    claims = [claims_table(each.claims, f"{each.model}, k = {each.plan.k}", ("p", "trials")) for each in findings]
    sections = [report.Section("The paper's claims", CLAIMS, tables=claims)]
    sections += [folded("What was registered", tables=[first]), _maps(findings), _scale(findings, plan.k)]
    for each in findings:
        sections += [_localization(each), _universal(each), _generality(each), _curves(each), _methods(each)]
    control = {"Negative control": plan.control} if plan.control else {}
    summary = report.Summary(
        model=", ".join(each.model for each in findings),
        trials=f"{plan.n_select} per capability to find its heads, up to {plan.most_trials} others to ablate them on"
        f"{_shares(plan)}",
        heads=[
            f"{each.name} {row['head']} ({name})"
            for each in findings
            for name, listed in each.frames["best_heads"].groupby("capability", sort=False)
            for row in listed.head(1).to_dict("records")
        ],
        verdict=" ".join(map(_sentence, findings)),
        figures=[
            plots.generality_map(
                TaskMap(each.frames["everywhere"], each.metrics),
                title=f"{each.name}: the cost of ablating each capability's heads",
            )
            for each in findings
        ],
        facts={
            "Claims": "; ".join(f"{each.model}: {counted(each.claims)}" for each in findings),
            "Capabilities": "; ".join(_asked(name, one) for name, one in plan.capabilities.items()),
            "Heads": f"the top {plan.k} by compressed sensing: {plan.mask_draws} draws of {plan.n_masks} random masks, each "
            f"ablating {plan.sparsity:.0%} of the heads, and a lasso regression on their cost",
            "Random heads": f"{plan.random_draws} sets of all heads and {plan.random_draws} with the same layers, on the first "
            f"{plan.random_trials} trials",
            "Ablation": f"{plan.kind}, at all positions",
            "Intervals": "95 %, over draws of masks or random heads crossed with trials",
            **control,
        },
    )
    return report.Page("Which few heads carry a capability?", summary, sections)


def _sentence(each: CapabilityFinding) -> str:
    """One model's answer: the capabilities that few heads carry, out of those asked."""
    carries = each.claims[each.claims["id"] == "carries"]
    names = list(carries.loc[carries["verdict"] == HOLDS, "capability"])
    carried = f": {', '.join(names)}" if names else ""
    return f"{each.model}: {each.plan.k} heads demonstrably carry {len(names)} of {len(carries)} capabilities{carried}."


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
        "The change of the metric when a head is ablated, by regression on the first draw of masks, relative to heads that the "
        "regression did not choose. Orange hurts.",
        figures=[
            plots.head_map(each.scores[name][0], title=f"{each.name}: {name}") for each in findings for name in each.own
        ],
        side_by_side=True,
    )


def _scale(findings: Sequence[CapabilityFinding], k: int) -> report.Section:
    models = beside(findings)
    measured = models[models["damage"].notna()]
    unit = _unit(one.metric for one in findings[0].plan.localized.values())
    rows = bars(measured, measured["capability"], measured["model"], "damage")
    figure = plots.drop_bars(
        rows, title=f"The cost of ablating each capability's top {k} heads", unit=unit, axis="damage"
    )
    tables = [
        table(models, "The share lost, by parameters", "damage", "lost", formats={"parameters": ",.0f"}),
        *([table(depths(findings, k), "Do the top heads sit at the same depth?")] if len(findings) > 1 else []),
    ]
    return folded(
        "Scale: models compared, and the paper's",
        f"{len(findings) + 1} models of different families do not make a scaling law: they differ in more than size, and "
        f"{k} heads are a different share of each. Damage is in the capability's own metric; lost is the share of right answers "
        "above chance; the paper's point is its own accuracy.",
        figures=[figure],
        tables=tables,
    )


def _unit(metrics: Iterable[str]) -> str:
    """The unit of damage: nats if all metrics are log-probabilities."""
    return "nats" if all(metric.endswith("logprob") for metric in metrics) else "of each task's metric"


def _localization(each: CapabilityFinding) -> report.Section:
    lost = " ".join(f"{name}: {reason}." for name, reason in each.reasons.items())
    return folded(
        f"{each.model}: how well masks find the heads",
        "held_out_r2 is the share of the variance of held-out masks that the heads predict; below 0, they predict worse than the "
        "mean. damage is what that draw's heads cost their capability on other trials; the spread between draws is luck. "
        f"{lost}",
        tables=[
            table(each.frames["fits"], "Fits, by draw of masks"),
            table(
                each.frames["agreement"],
                "Jaccard of the top heads, beside that of random ones. same: draws of masks of one capability; else two "
                "capabilities, which share heads as far as their Jaccard comes near that of draws",
            ),
            table(each.frames["best_heads"], "Top heads: in how many draws of masks, mean coefficient and rank"),
        ],
    )


def _universal(each: CapabilityFinding) -> report.Section:
    alone = each.frames["alone"]
    own = alone[alone["own"]].pivot(index="head", columns="task", values="damage").reset_index()
    return folded(
        f"{each.model}: universal heads, one by one",
        f"{each.universal or 'Too few capabilities that the model has.'} The {each.plan.candidates} heads in the top "
        f"{each.plan.k} of the most capabilities, each ablated alone. found counts capabilities and draws of masks. Where a task "
        "has no choices, the answers of other trials are the choices.",
        tables=[
            table(own, "Damage by one head, in each task's own metric"),
            table(alone, "The same with intervals for all together, and in metrics of the best choice", "damage"),
        ],
    )


def _generality(each: CapabilityFinding) -> report.Section:
    spread, unit = each.frames["spread"], _unit(each.metrics.values())
    rows = bars(spread, spread["heads"], spread["on"], "damage")
    return folded(
        f"{each.model}: what else the heads serve",
        "Damage on a capability's own trials, on other data of it, and averaged over unrelated tasks; and the other way, by "
        "heads found on the other data. Each task counts in its own metric.",
        figures=[plots.drop_bars(rows, title="Damage by kind of task", unit=unit, axis="damage")],
        tables=[table(spread, "Damage by kind of task, beside random heads", *COST)],
    )


def _curves(each: CapabilityFinding) -> report.Section:
    gsm8k, shown = published(__name__)["gsm8k"], each.frames["right_answers"]
    wide = shown.pivot(index="capability", columns="k", values="value").loc[each.own]
    wide.loc["the paper's GSM8K"] = pd.Series(gsm8k).reindex(wide.columns)
    wide = wide.rename(columns=lambda k: f"{k} heads").rename_axis("capability").reset_index()
    unit = _unit(each.metrics[name] for name in each.own)
    return folded(
        f"{each.model}: ablating more heads",
        f"Each capability's own heads on its own first {each.plan.random_trials} trials. Additivity: excess is what the heads "
        "cost together beyond the sum of what each costs alone; above 0, they stand in for one another.",
        figures=[plots.task_curves(each.frames["curves"], title="Every capability's own curve", unit=unit)],
        tables=[
            table(each.frames["additivity"], "Heads together, and one by one", "together", "each_alone", "excess"),
            table(wide, "Right answers by number of ablated heads"),
            table(shown, "Right answers lost, above chance", "lost"),
        ],
    )


def _methods(each: CapabilityFinding) -> report.Section:
    methods, name = each.frames["methods"], each.plan.compared
    labels = [plots.look(method).label for method in each.methods]
    parts = {"damage": "own capability", "others": "mean of the others"}
    rows = pd.concat([bars(methods, labels, label, part) for part, label in parts.items()])
    return folded(
        f"{each.model}: methods compared on {name}",
        f"Every method finds heads on the same trials; its top {each.plan.k} are ablated on others, those by compressed sensing "
        f"in every draw of masks (heads of the first are shown). An evaluation is one run over all selection trials; methods "
        f"that need more than {each.plan.most_evaluations} were skipped. Damage is in {each.metrics[name]}, that of others in "
        "their own metrics.",
        figures=[
            plots.drop_bars(
                rows, title="The cost of ablating each method's heads", unit=_unit(each.metrics.values()), axis="damage"
            )
        ],
        tables=[table(methods, "Methods", *COST, "others")],
    )
