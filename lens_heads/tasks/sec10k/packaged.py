"""Fictional annual reports, shipped with the package, so that the 10-K tasks run without a download.

Each has the sections of a 10-K and 4,000 to 5,000 words. Every fact is stated in one sentence of its usual section, and in
about one report in seven again elsewhere. Everything else is a distractor: part-time and last year's staff, beneficial
holders, plants, former headquarters, subsidiaries' states and years, other officers and other companies. A value occurs
only in the sentences that state it, with two exceptions: the registrant's name is also mentioned in passing, and if the
headquarters are in the state of incorporation, both sentences contain that state. All text is original:
`benchmarks/annual_reports.py` made it.
"""

from __future__ import annotations

import json
import lzma

from lens_heads.tasks.books import data
from lens_heads.tasks.sampling import enough
from lens_heads.tasks.sec10k.filings import Filing

HELD = 240
"""How many reports there are."""


def packaged_filings(n: int = HELD) -> list[Filing]:
    """The first n reports, each of another company. ValueError for more than there are.

    Their id, such as "made-0-0017", doubles as the company's CIK; `facts` has all eight tasks, numbers in bare digits.
    """
    enough(n, HELD, "fictional companies")
    lines = lzma.decompress(data("annual_reports.jsonl.xz").read_bytes()).decode().splitlines()
    return [Filing(**json.loads(line)) for line in lines[:n]]
