"""Trials and trials of documents: the needle stands whole, once, and nothing around it gives the value away."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_heads.tasks.sec10k.build import Instance, chunks, documents, haystack, trial, without
from lens_heads.tasks.sec10k.settings import settings
from lens_heads.tasks.sec10k.statements import Statement, find_statement
from tests import zoo
from tests.tasks.sec10k.handmade import FACTS, FILING, NEEDLES

TASKS = tuple(settings()["tasks"])
GIVEAWAYS = {
    "registrant_name": r"halvorsen",
    "headquarters_city": r"bangor",
    "headquarters_state": r"maine|, me\b",
    "incorporation_state": r"delaware|, de\b",
    "incorporation_year": r"1931",
    "employees_count_total": r"(?<![\d,])1,?480",
    "ceo_lastname": r"quist",
    "holder_record_amount": r"(?<![\d.])389",
}

OTHERS = {
    "item_1": "Of these, 11,480 hours were lost to strikes.",
    "item_2": "A mill in Bangor, Maine is leased until 2007.",
    "item_5": "Dividends of $.389 a share were paid.",
    "item_7": "Freight costs were lower.",
    "item_10": "Dr. Ida Chang is Chief Financial Officer.",
}


def instance(task: str, filing=FILING) -> Instance:
    found = find_statement(filing, task)
    assert isinstance(found, Statement)
    return Instance(filing, task, found)


@pytest.mark.parametrize("task", TASKS)
def test_a_trial_asks_for_the_fact_and_hides_its_sentence(task: str) -> None:
    made = trial(instance(task), 5000, 0, False)
    assert made.id == f"sec10k-{task}-halvorsen_1996"
    assert made.question == settings()["tasks"][task]["question"]
    assert (made.needle, made.depth, made.length) == (NEEDLES[task], 0.5, 0)
    assert FACTS[task] in (made.answer, *made.aliases)
    assert not re.search(GIVEAWAYS[task], made.haystack.lower())
    assert re.search(GIVEAWAYS[task], made.needle.lower()), "the pattern of this test finds nothing"
    for name, other in OTHERS.items():
        assert (other in made.haystack) == (name != made.meta["section"])
    section = "item_" + {"headquarters_city": "2", "headquarters_state": "2", "holder_record_amount": "5"}.get(
        task, "1"
    )
    section = "item_10" if task == "ceo_lastname" else section
    facts = {"kind": task, "task": task, "filing": "halvorsen_1996", "cik": "1234", "year": 1996, "section": section}
    assert made.meta == facts | {"only": True, "extracted": False, "words": len(made.haystack.split())}
    assert {"{haystack}", "{question}"} == set(re.findall(r"\{\w+\}", made.template))


@pytest.mark.parametrize("task", TASKS)
def test_in_tokens_the_needle_stands_in_the_middle(task: str) -> None:
    sections = {**FILING.sections, "item_8": " ".join(f"Note {i} is about leases." for i in range(400))}
    made = trial(instance(task, replace(FILING, sections=sections)), 1000, 0, False)
    tokenizer = zoo.tokenizer()
    encoded = made.encode(tokenizer)
    assert encoded.needle is not None
    start, end = encoded.needle
    assert tokenizer.decode(encoded.tokens[start:end]).strip() == made.needle
    assert 0.4 < start / len(encoded) < 0.6
    prompt = tokenizer.decode(encoded.tokens)
    assert prompt.endswith(f"Question: {made.question}\nAnswer:")
    assert len(re.findall(GIVEAWAYS[task], prompt.lower())) == len(re.findall(GIVEAWAYS[task], made.needle.lower()))


def test_answers_are_as_written_and_the_other_forms_count_too() -> None:
    count = trial(instance("employees_count_total"), 5000, 0, None)
    assert (count.answer, count.aliases) == ("1,480", ("1480",))
    named = trial(instance("registrant_name"), 5000, 0, None)
    assert named.answer == "Halvorsen Paper Mills, Inc."
    assert "HALVORSEN PAPER MILLS" in named.aliases
    sections = {**FILING.sections, "item_2": "Our executive offices are at 4 Mill St., Bangor, ME 04401."}
    state = trial(instance("headquarters_state", replace(FILING, sections=sections)), 5000, 0, None)
    assert (state.answer, state.aliases) == ("Maine", ("ME",))


@pytest.mark.parametrize(
    ("task", "text", "right"),
    [
        ("incorporation_year", " 1931", 1),
        ("incorporation_year", " 1", 1),
        ("incorporation_year", " 1988", 0),
        ("employees_count_total", " The Company employed 1480 persons. It had 3 mills.", 1),
        ("employees_count_total", " 11.\n1480", 0),
        ("headquarters_state", " ME", 1),
        ("headquarters_state", " the same", 0),
        ("headquarters_state", " Bangor, Maine. Ohio", 1),
        ("headquarters_state", " Ohio. Maine", 0),
        ("ceo_lastname", " Ann T. Quist", 0),
        ("ceo_lastname", " Ann Quist", 1),
        ("ceo_lastname", "", 0),
    ],
)
def test_the_judge_is_the_studys(task: str, text: str, right: float) -> None:
    made = trial(instance(task), 5000, 0, None)
    assert made.judge.correct(text, (made.answer, *made.aliases)) == right


FILLER = [f"Sentence number {word} is here." for word in ("one", "two", "three", "four", "five", "six")]
FORMS = ["It is in New", "York or so.", "We like New York.", "NY is not.", "So, NY 10001."]


@given(
    st.lists(st.sampled_from([*FILLER, *FORMS]), max_size=30),
    st.integers(1, 60),
    st.integers(0, 5),
)
def test_a_haystack_holds_no_form_of_the_value_and_about_so_many_words(
    texts: list[str], length: int, seed: int
) -> None:
    needle = "Our headquarters are located in New York, New York."
    sections = {"item_2": needle, "item_7": "\n".join(texts) or "Nothing.", "item_9": "Nothing else is reported here."}
    filing = replace(FILING, sections=sections, facts={"headquarters_state": "New York"})
    made = haystack(instance("headquarters_state", filing), length, seed)
    assert not re.search(r"New\s+York|, NY\b|NY \d{5}", made)
    whole = haystack(instance("headquarters_state", filing), 10_000, seed)
    assert made in whole
    assert min(length, len(whole.split())) <= len(made.split()) < length + 6
    assert needle not in made


def test_stretches_begin_in_different_places_and_are_fixed_by_the_seed() -> None:
    sections = {**FILING.sections, "item_8": " ".join(f"Note {i} is about leases." for i in range(400))}
    long = instance("headquarters_city", replace(FILING, sections=sections))
    stretches = {haystack(long, 100, seed) for seed in range(8)}
    assert len(stretches) == 8
    assert haystack(long, 100, 3) == haystack(long, 100, 3)
    assert all(100 <= len(stretch.split()) < 140 for stretch in stretches)


def test_pieces_that_hold_a_match_only_together_go_too() -> None:
    assert without(["New ", "York. ", "Rain. "], re.compile("New York")) == ["Rain. "]
    assert without(["a ", "x ", "b "], re.compile("x|a b")) == [], "what is left is looked at again"
    assert without([], re.compile("x")) == []


@given(
    st.text(alphabet="ab \n", max_size=200),
    st.lists(st.tuples(st.integers(0, 200), st.integers(1, 60)), max_size=3),
    st.integers(1, 12),
)
def test_chunks_hold_every_word_once_and_never_split_what_is_kept(
    text: str, places: list[tuple[int, int]], size: int
) -> None:
    keep = []
    for start, many in sorted(places):
        if start + many <= len(text) and (not keep or keep[-1][1] <= start) and text[start : start + many].strip():
            inner = text[start : start + many]
            keep.append((start + len(inner) - len(inner.lstrip()), start + len(inner.rstrip())))
    spans = chunks(text, keep, size)
    assert " ".join(text[start:end] for start, end in spans).split() == text.split()
    for at, to in keep:
        assert sum(start <= at and to <= end for start, end in spans) == 1
    for start, end in spans:
        if not any(start < to and at < end for at, to in keep):
            assert len(text[start:end].split()) <= size


@pytest.mark.parametrize("task", TASKS)
def test_documents_are_the_report_in_chunks_and_gold_is_the_one_with_the_needle(task: str) -> None:
    made = documents(instance(task), 12, None, 0)
    assert (made.id, made.query) == (f"sec10k-{task}-halvorsen_1996", settings()["tasks"][task]["question"])
    assert len({document.id for document in made.documents}) == len(made.documents)
    joined = " ".join(" ".join(document.text for document in made.documents).split())
    assert joined == " ".join(" ".join(FILING.sections.values()).split())
    (gold,) = (document for document in made.documents if document.id in made.gold)
    assert NEEDLES[task] in gold.text
    assert gold.id.startswith(made.meta["section"] + "-")
    assert gold.title == made.meta["section"].replace("item_", "Item ")
    assert re.search(GIVEAWAYS[task], made.answer.lower())


def test_a_second_statement_makes_a_second_gold_document() -> None:
    twice = {
        **FILING.sections,
        "item_8": "Notes follow. Halvorsen was incorporated in the State of Delaware in May 1931.",
    }
    made = documents(instance("incorporation_state", replace(FILING, sections=twice)), 8, None, 0)
    texts = {document.id: document.text for document in made.documents}
    assert [texts[name] for name in made.gold][1] == "Halvorsen was incorporated in the State of Delaware in May 1931."
    assert made.gold[1] == "item_8-2"
    assert not made.meta["only"]


def test_fewer_documents_are_drawn_from_the_other_sections_only() -> None:
    whole = documents(instance("ceo_lastname"), 10, None, 0).documents
    own = [document for document in whole if document.id.startswith("item_10-")]
    draws = [documents(instance("ceo_lastname"), 10, 3, seed) for seed in range(6)]
    for made in draws:
        assert len(made.documents) == len(own) + 3
        assert set(own) <= set(made.documents) <= set(whole)
        assert [whole.index(document) for document in made.documents] == sorted(map(whole.index, made.documents))
    assert len({made.documents for made in draws}) > 1
    assert documents(instance("ceo_lastname"), 10, 0, 0).documents == tuple(own)
    assert documents(instance("ceo_lastname"), 10, 10_000, 0).documents == whole
