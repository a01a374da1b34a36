"""On which families of models everything is right, and what is refused on which."""

from __future__ import annotations

from .reading import Results, Row, described
from .writing import section, table

VERDICTS = {"exact": "works exactly", "except": "works, except", "refused": "refused", "wrong": "wrong"}
VERDICTS |= {"foreign error": "ends in another library's error", "not built": "not built by transformers"}


def families(results: Results) -> str:
    """A row per family, in the order of the file."""
    found = results.study("families")
    rows: list[Row] = found["families"]
    counts = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in VERDICTS}
    said = "; ".join(f"{VERDICTS[verdict]} {count}" for verdict, count in counts.items() if count)
    versions = ", ".join(f"{package} {number}" for package, number in found["versions"].items())
    largest = max(row["error"] for row in rows if row["verdict"] == "exact")
    return section(
        described("families"),
        f"With {versions}, of {len(rows)}: {said}. Largest error of those that work exactly: {largest:.0e} of what is compared.",
        table(
            ["family", "class", "", "because"],
            [[row["family"], _class(row), VERDICTS[row["verdict"]], row["why"].replace("|", "\\|")] for row in rows],
        ),
    )


def _class(row: Row) -> str:
    return f"`{row['class']}`" if "class" in row else f"`{row['kind']}`"
