"""A study as one HTML page, and its numbers as tables in the terminal.

Knows values, tables and figures; neither runs a model nor says what a number means.
"""

from lens_heads.report.explored import write_explorer, write_why
from lens_heads.report.html import page, write_report
from lens_heads.report.parts import Card, Example, Figure, Page, Provenance, Section, Summary, Table, Texts

__all__ = [
    "Card", "Example", "Figure", "Page", "Provenance", "Section", "Summary", "Table", "Texts", "page",
    "write_explorer", "write_report", "write_why",
]  # fmt: skip
__dir__ = __all__.copy
