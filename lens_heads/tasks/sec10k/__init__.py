"""Eight facts of companies, asked from their annual reports (SEC form 10-K): name, headquarters, incorporation, ..

The tasks of the study "Different Heads, Same Fragile Tasks". Heads are detected on documents (`sec10k_documents`) and
ablated on trials (`sec10k`) of other companies; the study decodes 30 tokens, greedily.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from lens_heads.tasks.rows import enough
from lens_heads.tasks.sampling import SPLITS, check_split, stratified
from lens_heads.tasks.sec10k import build
from lens_heads.tasks.sec10k.filings import Filing, read_corpus, read_filings
from lens_heads.tasks.sec10k.settings import settings
from lens_heads.tasks.sec10k.statements import Statement, find_statement
from lens_heads.tasks.sec10k.survey import survey
from lens_heads.trials.documents import DocumentTrial
from lens_heads.trials.trial import Trial

SOURCES = ("packaged", "filings", "corpus")
ONE_SECTION = "no other section"


def sec10k(
    path: str | Path | None = None,
    task: str | Sequence[str] | None = None,
    split: str | None = None,
    n: int | None = None,
    words: int = 5000,
    seed: int = 0,
    source: str | None = None,
    truth: str | Path | None = None,
    years: Sequence[int] = (1993,),
    extract: bool = True,
    split_seed: int = 0,
    chat: bool | None = False,
) -> list[Trial]:
    """Questions about a company, each with the sentence that states the answer amid other sections of its report.

    Args:
        path: edgar-crawler's JSON files, a folder or .zip; or, for "corpus", a local copy of EDGAR-CORPUS.
        task: one of the eight tasks or several: registrant_name, headquarters_city, headquarters_state,
            incorporation_state, incorporation_year, employees_count_total, ceo_lastname, holder_record_amount.
            None for all.
        split: "select" to find heads, "test" to evaluate them, None for both. A company is in one of them only: which,
            depends on its CIK and `split_seed` alone, whatever the source, the task, the number and the seed.
        n: trials, spread evenly over the tasks; None for all.
        words: of the text around the sentence, which stands in its middle; less where the other sections have less.
        seed: of the draw, and of the stretch of text.
        source: "packaged", made-up reports, shipped; "filings", edgar-crawler's; "corpus", EDGAR-CORPUS from the hub or
            a local copy. None: filings where there is a path, else packaged.
        truth: for "corpus": a CSV of true values; see `read_corpus`.
        years: for "corpus" from the hub.
        extract: take values from sentences that leave no doubt where the true one is not known (`meta["extracted"]`).
        split_seed: of the split.
        chat: as in `Trial`. False by default, for chat models too.

    Returns:
        Trials with ids such as "sec10k-ceo_lastname-ACME_1993"; `meta` holds task, cik, year, section, filing, whether
        the sentence is the only one that states the value, and whether the value was extracted. The judge is the
        study's, which counts containment either way; the metrics `contains` and `exact_match` are strict.

    Raises:
        FileNotFoundError, ValueError: naming file and field; an unknown task, split or source; arguments that do not go
            together; a task that no filing states, with the reasons; more trials than there are.

    Differs from the study: splits share no company (there: no filing); no sentence around the needle holds the value.
    """
    if words < 1:
        raise ValueError(f"words={words}: give the number of words around the needle, 1 or more")
    found = _instances(path, task, split, source, truth, years, extract, split_seed)
    drawn = stratified(found, enough(n, len(found), "facts that a sentence states"), _task, seed)
    return [build.trial(instance, words, seed, chat) for instance in drawn]


def sec10k_documents(
    path: str | Path | None = None,
    task: str | Sequence[str] | None = None,
    split: str | None = None,
    n: int | None = None,
    chunk_words: int = 400,
    n_documents: int | None = None,
    seed: int = 0,
    source: str | None = None,
    truth: str | Path | None = None,
    years: Sequence[int] = (1993,),
    extract: bool = True,
    split_seed: int = 0,
) -> list[DocumentTrial]:
    """The same questions over the whole report in chunks, for detecting heads by the attention on the gold ones.

    Args:
        chunk_words: words of a chunk. No sentence that states the value is split: a chunk ends before it, or is longer.
        n_documents: chunks of other sections, drawn at random; None for all. The sentence's own section is there whole.

    The other arguments, and the errors, are those of `sec10k`. Gold are the chunks with a sentence that states the
    value.
    """
    if chunk_words < 1 or (n_documents is not None and n_documents < 0):
        raise ValueError(f"chunk_words={chunk_words}, n_documents={n_documents}: give at least 1 word, and 0 or more")
    found = _instances(path, task, split, source, truth, years, extract, split_seed)
    drawn = stratified(found, enough(n, len(found), "facts that a sentence states"), _task, seed)
    return [build.documents(instance, chunk_words, n_documents, seed) for instance in drawn]


def half(cik: str, split_seed: int = 0) -> str:
    """The split that a company falls into: "select" or "test", by its CIK and a seed alone."""
    return random.Random(f"{split_seed}-{cik.lstrip('0')}").choice(SPLITS)


def _instances(
    path: str | Path | None,
    task: str | Sequence[str] | None,
    split: str | None,
    source: str | None,
    truth: str | Path | None,
    years: Sequence[int],
    extract: bool,
    split_seed: int,
) -> list[build.Instance]:
    """Every fact of the asked tasks that a sentence states; ValueError for a task without any."""
    source = source or ("packaged" if path is None else "filings")
    known = tuple(settings()["tasks"])
    wanted = known if task is None else (task,) if isinstance(task, str) else tuple(task)
    for name in wanted:
        if name not in known:
            raise ValueError(f"there is no task {name!r}: the tasks are {', '.join(known)}, or None for all")
    check_split(split)
    filings = [
        filing for filing in _filings(source, path, truth, years) if split in (None, half(filing.cik, split_seed))
    ]
    found: list[build.Instance] = []
    for name in wanted:
        made = [(filing, _statement(filing, name, extract)) for filing in filings]
        stated = [build.Instance(filing, name, each) for filing, each in made if isinstance(each, Statement)]
        if not stated:
            reasons = Counter(each for _, each in made)
            why = ", ".join(f"{count} x {reason}" for reason, count in reasons.most_common()) or "there are none"
            part = f"the {split} half of the filings" if split else "the filings"
            raise ValueError(
                f"task {name!r}: no sentence in {part} states it ({why}): give other filings, or leave it out"
            )
        found += stated
    return found


def _statement(filing: Filing, task: str, extract: bool) -> Statement | str:
    found = find_statement(filing, task, extract)
    if isinstance(found, Statement) and set(filing.sections) == {found.section}:
        return ONE_SECTION
    return found


def _filings(source: str, path: str | Path | None, truth: str | Path | None, years: Sequence[int]) -> list[Filing]:
    if source not in SOURCES:
        raise ValueError(f"there is no source {source!r}: use {', '.join(map(repr, SOURCES))}")
    if truth is not None and source != "corpus":
        raise ValueError("truth= is for source='corpus': packaged reports and edgar-crawler's files bring their facts")
    if source == "corpus":
        return read_corpus(path, truth, years)
    if source == "filings":
        if path is None:
            raise ValueError("source='filings' needs path=: a folder or a .zip of edgar-crawler's JSON files")
        return read_filings(path)
    if path is not None:
        raise ValueError("path= is for source='filings' and 'corpus': the packaged reports are shipped")
    from lens_heads.tasks.sec10k.packaged import packaged_filings

    return packaged_filings()


def _task(instance: build.Instance) -> str:
    return instance.task


__all__ = ["Filing", "find_statement", "half", "read_corpus", "read_filings", "sec10k", "sec10k_documents", "survey"]
