"""Facts without annotation, extracted from sentences of unambiguous form. Never ground truth."""

from __future__ import annotations

from lens_heads.tasks.sec10k.filings import Filing
from lens_heads.tasks.sec10k.patterns import stating
from lens_heads.tasks.sec10k.settings import settings
from lens_heads.tasks.sec10k.values import number

UNKNOWN = "value unknown"
SEVERAL = "several values in the text"


def extracted(filing: Filing, task: str) -> str | None:
    """The value that the filing's usual sections state for a task, or None if none is found or the task is excluded.

    Only the sentences that match the best pattern count. Raises LookupError if they state more than one value.
    Names and states are excluded: a report contains too many of both.
    """
    known = settings()["tasks"][task]
    if known["kind"] in ("name", "state"):
        return None
    found = stating(filing, task)
    best = [stated for stated in found if stated.rank == found[0].rank]
    values = {number(each.value_text) if known["kind"] == "number" else each.value_text for each in best}
    if len(values) > 1:
        raise LookupError(SEVERAL)
    return next(iter(values), None)
