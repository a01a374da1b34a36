"""Eight facts about companies, asked from their annual reports (SEC form 10-K): name, headquarters, incorporation, ..

The tasks of the study "Different Heads, Same Fragile Tasks". Heads are detected on documents (`sec10k_documents`) and
ablated on trials (`sec10k`) of other companies; the study decodes 30 tokens greedily.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.tasks.sampling import SPLITS, check_known, check_split, stratified
from lens_heads.tasks.sec10k import build
from lens_heads.tasks.sec10k.filings import Filing, packaged_filings, read_corpus, read_filings
from lens_heads.tasks.sec10k.settings import settings
from lens_heads.tasks.sec10k.statements import find_statement, survey
from lens_heads.trials.documents import DocumentTrial
from lens_heads.trials.trial import Trial


@typed
def sec10k(
    path: str | Path | None = None,
    *,
    task: str | Sequence[str] | None = None,
    split: str | None = None,
    n: int | None = None,
    words: int = 5000,
    seed: int = 0,
    source: str | Mapping[str, Any] | None = None,
    extract: bool = True,
    split_seed: int = 0,
    chat: bool | None = False,
) -> list[Trial]:
    """Questions about a company; the needle is the sentence that states the answer, amid other sections of the report.

    Args, besides those of `lens_heads.tasks`:
        path: a folder or .zip of edgar-crawler's JSON files; or, for "corpus", a local copy of EDGAR-CORPUS.
        task: one or several of the eight tasks: registrant_name, headquarters_city, headquarters_state,
            incorporation_state, incorporation_year, employees_count_total, ceo_lastname, holder_record_amount.
            None for all.
        split: a company's split depends only on its CIK and `split_seed`, not on the source, task, number of trials or seed.
        n: number of trials, spread evenly over the tasks.
        words: length in words of the text around the needle, which is in the middle; less if the other sections are
            shorter.
        source: "packaged" for the fictional reports shipped with the package, "filings" for edgar-crawler's files,
            "corpus" for EDGAR-CORPUS from the hub or a local copy; or a corpus with options of `read_corpus`:
            {"years": [1993, 1994], "truth": "truth.csv"}. None: "filings" with a path, else "packaged".
        extract: where the true value is unknown, take it from an unambiguous sentence (`meta["extracted"]`).
        split_seed: random seed for the split.

    Returns:
        Trials with ids such as "sec10k-ceo_lastname-ACME_1993"; `meta` holds task, cik, year, section, filing, whether
        only one sentence states the value, and whether the value was extracted. The company is the group. The judge is the
        study's, which accepts containment in either direction; the metrics `contains` and `exact_match` are strict.

    A task that no filing states is a ValueError, which gives the reasons.

    Differs from the study: splits share no company (there: no filing); no sentence around the needle contains the value.

    Example:
        >>> report = {"cik": "1", "company": "ACME", "state_of_inc": "DE", "item_2": "It owns a mill. It rains there. " * 9}
        >>> report |= {"item_1": "ACME Corporation was incorporated in Delaware in 1950. It makes anvils."}
        >>> pd.Series(report).to_json("1_10K_1997_x.json")
        >>> trial = lh.tasks.sec10k(".", task="incorporation_state")[0]
        >>> trial.needle, trial.answer
        ('ACME Corporation was incorporated in Delaware in 1950.', 'Delaware')
    """
    checks.whole_number("words", words, remedy=", the number of words around the needle")
    found = _instances(path, task, split, n, seed, source, extract, split_seed)
    return [build.trial(each, words, seed, chat) for each in found]


@typed
def sec10k_documents(
    path: str | Path | None = None,
    *,
    task: str | Sequence[str] | None = None,
    split: str | None = None,
    n: int | None = None,
    chunk_words: int = 400,
    n_documents: int | None = None,
    seed: int = 0,
    source: str | Mapping[str, Any] | None = None,
    extract: bool = True,
    split_seed: int = 0,
) -> list[DocumentTrial]:
    """The same questions over the whole report in chunks, for detecting heads by their attention to the gold chunks.

    Args, besides those of `sec10k`:
        chunk_words: words per chunk. A sentence that states the value is never split: the chunk ends before it, or is
            longer.
        n_documents: number of chunks from other sections, drawn at random; None for all. The needle's own section is
            always included whole.

    Gold chunks are those with a sentence that states the value.

    `extract`, `split_seed`: as in `sec10k`.

    Example:
        >>> report = {"cik": "1", "company": "ACME", "state_of_inc": "DE", "item_2": "It owns a mill. It rains there. " * 9}
        >>> report |= {"item_1": "ACME Corporation was incorporated in Delaware in 1950. It makes anvils."}
        >>> pd.Series(report).to_json("1_10K_1997_x.json")
        >>> trial = lh.tasks.sec10k_documents(".", task="incorporation_state")[0]
        >>> trial.query, trial.gold
        ('What is the incorporation state?', ('item_1-1',))
    """
    checks.whole_number("chunk_words", chunk_words)
    if n_documents is not None:
        checks.whole_number("n_documents", n_documents, 0, remedy=", or None for all")
    found = _instances(path, task, split, n, seed, source, extract, split_seed)
    return [build.documents(each, chunk_words, n_documents, seed) for each in found]


def half(cik: str, split_seed: int = 0) -> str:
    """The split of a company, "select" or "test", determined by its CIK and a seed alone."""
    return random.Random(f"{checks.seed(split_seed, 'split_seed')}-{cik.lstrip('0')}").choice(SPLITS)


def _instances(
    path: str | Path | None,
    task: str | Sequence[str] | None,
    split: str | None,
    n: int | None,
    seed: int,
    source: str | Mapping[str, Any] | None,
    extract: bool,
    split_seed: int,
) -> list[build.Instance]:
    """Facts of the requested tasks that a sentence states, `n` or all; ValueError for a task without any."""
    # All arguments before the reports, which may take minutes to read.
    checks.seed(seed)
    checks.seed(split_seed, "split_seed")
    if n is not None:
        checks.whole_number("n", n, remedy=", or None for all")
    known = tuple(settings()["tasks"])
    wanted = known if task is None else (task,) if isinstance(task, str) else tuple(task)
    for name in wanted:
        check_known("task", name, known, ", or None for all")
    check_split(split)
    source = source or ("packaged" if path is None else "filings")
    filings = [each for each in _filings(source, path) if split in (None, half(each.cik, split_seed))]
    asked = [(filing, name) for name in wanted for filing in filings]
    if source == "packaged":  # All of their facts are stated, and finding those that are not drawn takes long.
        asked = stratified(asked, n, itemgetter(1), seed)
        wanted = tuple(dict.fromkeys(name for _, name in asked))
    found: list[build.Instance] = []
    for name in wanted:
        made = [_instance(filing, name, extract) for filing, each in asked if each == name]
        stated = [each for each in made if isinstance(each, build.Instance)]
        if not stated:
            why = ", ".join(f"{count} x {reason}" for reason, count in Counter(made).most_common())
            part = f"the {split} half of the filings" if split else "the filings"
            raise ValueError(
                f"task {name!r}: no sentence in {part} states it ({why or 'there are no filings'}); use other filings "
                "or omit the task"
            )
        found += stated
    return stratified(found, n, attrgetter("task"), seed)


def _instance(filing: Filing, task: str, extract: bool) -> build.Instance | str:
    """The fact with its sentence, or the reason why there is none."""
    found = find_statement(filing, task, extract)
    if isinstance(found, str):
        return found
    return "no other section" if set(filing.sections) == {found.section} else build.Instance(filing, task, found)


def _filings(source: str | Mapping[str, Any], path: str | Path | None) -> list[Filing]:
    if isinstance(source, Mapping):
        for option in source:
            check_known("option of source", option, ("years", "truth"), ", those of `read_corpus`")
        return read_corpus(path, **source)
    check_known("source", source, ("packaged", "filings", "corpus"))
    if source == "corpus":
        return read_corpus(path)
    if source == "filings":
        if path is None:
            raise ValueError("source='filings' requires path=: a folder or .zip of edgar-crawler's JSON files")
        return read_filings(path)
    if path is not None:
        raise ValueError("path= requires source='filings' or 'corpus': the packaged reports are shipped")
    return packaged_filings()


__all__ = ["Filing", "find_statement", "half", "read_corpus", "read_filings", "sec10k", "sec10k_documents", "survey"]
