"""Heads found by training, and what is left when a model goes on without the others."""

from __future__ import annotations

from .reading import Results, Row, described, measured_by, short
from .writing import NOTHING, num, of, percent, table


def trained(results: Results) -> str:
    runs = results.latest_by_model("trained")
    parts = [
        described("trained"),
        measured_by("python benchmarks/trained.py", runs.values(), "trained.jsonl"),
        _sizes(runs),
    ]
    for name, run in runs.items():
        for task, one in run["results"]["tasks"].items():
            rows = [
                [
                    f"`{row['method']}`",
                    NOTHING if row["method"] == "random" else num(row["passes"], 0),
                    num(row["seconds"], 0),
                    of(row, "damage", "damage"),
                    NOTHING if row["method"] == "random" else of(row, "beyond_random", "beyond_random"),
                    of(row, "elsewhere", "elsewhere"),
                    num(row["stability"]),
                ]
                for row in sorted(one["rows"], key=lambda row: -row["damage"])
            ]
            columns = [
                "method",
                "passes a trial",
                "seconds",
                "damage",
                "area beyond random",
                "damage elsewhere",
                "stability",
            ]
            parts += [f"### {short(name)}: trained on {task}", table(columns, rows), _left_out(one)]
    return "\n\n".join(part for part in parts if part)


def _sizes(runs: dict[str, Row]) -> str:
    size = next(iter(runs.values()))["results"]["preset"]
    return (
        f"{size['select']} selection trials, {size['test']} test trials, {size['draws']} sets of random heads, k = {size['k']}. "
        "Damage: nats that ablating k heads takes from the answer; the area is its mean over log k. Stability: Jaccard of the "
        "top k of two trainings on half of the trials each."
    )


def _left_out(one: Row) -> str:
    return "; ".join(f"`{name}` left out: {why}" for name, why in one["left_out"].items())


def deploying(results: Results) -> str:
    runs = results.latest_by_model("deploying")
    about = next(iter(runs.values()))["results"]
    parts = [
        described("deploying"),
        measured_by("python benchmarks/deploying.py", runs.values(), "deploying.jsonl"),
        f"The other kv heads keep {about['sink']} tokens at the beginning and {about['recent']} recent ones. "
        f"{about['trials']} test trials of each length. Log-probability in nats a token; beyond random: "
        "more than with as many random kv heads kept.",
    ]
    for name, run in runs.items():
        found = run["results"]
        agreed = ", ".join(f"`{other}` {num(rho)}" for other, rho in found["agreement"].items())
        parts.append(
            f"{short(name)}: Spearman of the rankings of kv heads with DuoAttention's gates, trained here: {agreed}."
        )
        for rows in found["lengths"].values():
            parts += [f"### {short(name)}: a smaller cache, {rows[0]['tokens']} tokens", _caches(rows)]
        parts += [f"### {short(name)}: stronger heads", _decoding(found["decoding"])]
        if found["checkpoints"]:
            parts += [f"### {short(name)}: pruned checkpoints", _checkpoints(found["checkpoints"])]
    return "\n\n".join(parts)


def _caches(rows: list[Row]) -> str:
    """A row per ranking, a column per share of the heads."""
    shares = sorted({row["share"] for row in rows if 0 < row["share"] < 1})
    named = {(row["ranking"], row["share"]): row for row in rows}
    lines = []
    for ranking in dict.fromkeys(row["ranking"] for row in rows if 0 < row["share"] < 1):
        cells = [_cell(named[ranking, share]) for share in shares]
        kept = " / ".join(percent(named[ranking, share]["kept"]) for share in shares)
        lines.append([f"`{ranking}`" if ranking != "random" else ranking, kept, *cells])
    whole, none = named["whole", 1.0], named["none", 0.0]
    ends = (
        f"With the whole cache ({whole['whole_bytes'] / 2**20:.1f} MiB): {of(whole, 'logprob', 'logprob')}, "
        f"{percent(whole['correct'])} right. With none of it ({percent(none['kept'])} kept): "
        f"{of(none, 'logprob', 'logprob')}, {percent(none['correct'])} right."
    )
    heads = [f"{percent(share)} of the kv heads: log-probability, right, beyond random" for share in shares]
    answers = " ".join(_answer(rows, share) for share in shares)
    return f"{ends}\n\n" + table(["ranking", "memory kept", *heads], lines) + f"\n\n{answers}"


def _answer(rows: list[Row], share: float) -> str:
    """Which ranking keeps retrieval with so many kv heads?"""
    ranked = sorted(
        (row for row in rows if row["share"] == share and row["ranking"] != "random"), key=lambda row: -row["logprob"]
    )
    surely = [f"`{row['ranking']}`" for row in ranked if row["beyond_random_low"] > 0]
    best, others = ranked[0]["ranking"], ", ".join(surely) or "none"
    return (
        f"With {percent(share)} of the kv heads, those of `{best}` keep most; the interval beyond random heads is above zero for "
        f"{others}."
    )


def _cell(row: Row) -> str:
    beyond = f", {of(row, 'beyond_random', 'beyond_random')}" if row.get("beyond_random") is not None else ""
    return f"{num(row['logprob'])}, {percent(row['correct'])}{beyond}"


def _decoding(rows: list[Row]) -> str:
    cells = [[row["decoding"], num(row["logprob"]), percent(row["correct"]), of(row, "gain", "gain")] for row in rows]
    return table(["decoding", "log-probability", "right", "gain over plain decoding, nats"], cells)


def _checkpoints(rows: list[Row]) -> str:
    cells = [
        [
            row["pruned"],
            row["heads"],
            " to ".join(f"{number / 1e6:.1f} M" for number in row["parameters"]),
            num(row["speed"]),
            num(row["logprob"]),
        ]
        for row in rows
    ]
    return table(
        ["lowest kv head of each layer by", "query heads gone", "parameters", "prefill, of before", "log-probability"],
        cells,
    )


def injecting(results: Results) -> str:
    runs = results.latest_by_model("injecting")
    k = next(iter(runs.values()))["results"]["k"]
    parts = [described("injecting"), measured_by("python benchmarks/injecting.py", runs.values(), "injecting.jsonl")]
    for name, run in runs.items():
        found = run["results"]["relations"]
        by_name = {relation: {row["put in"]: row for row in one["rows"]} for relation, one in found.items()}
        first = next(iter(by_name.values()))
        cells = [[put, *(of(rows[put], "probability", None) for rows in by_name.values())] for put in first]
        best = "; ".join(
            f"{relation}: {', '.join(row['head'] for row in one['best'])}" for relation, one in found.items()
        )
        agreed = ", ".join(f"{relation} {num(one['spearman'])}" for relation, one in found.items())
        parts += [
            f"### {short(name)}: task vectors",
            table(["put in", *(f"{relation}, {one['trials']} words" for relation, one in found.items())], cells),
            f"Cells: probability of the answer's first token. The five heads of largest effect: {best} (of {k} that are used). "
            f"Spearman of effects with the gates of soft injection: {agreed}.",
        ]
    return "\n\n".join(parts)
