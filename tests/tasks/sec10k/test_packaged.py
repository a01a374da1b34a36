"""Made-up annual reports: every value stands where it is stated and nowhere else, among things to be told apart."""

import json
import lzma
import random
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lens_heads.tasks.sec10k.filings import Filing, packaged_filings
from tests.scripts import BENCHMARKS, script

MADE = script("annual_reports")
"""What made them."""
DATA = BENCHMARKS / "annual_reports"
WORDS, PHRASES = (json.loads((DATA / f"{name}.json").read_text()) for name in ("words", "phrases"))
SECTIONS, INDUSTRIES = (json.loads((DATA / f"{name}.json").read_text()) for name in ("sections", "industries"))
USUAL = {
    "registrant_name": ("item_1", r"Company|Registrant|[Rr]egistrant|refer|mean"),
    "headquarters_city": ("item_2", r"[Hh]eadquarter|offices? "),
    "headquarters_state": ("item_2", r"[Hh]eadquarter|offices? "),
    "incorporation_state": ("item_1", r"incorporated|organized|corporation"),
    "incorporation_year": ("item_1", r"incorporated|organized|formed"),
    "employees_count_total": ("item_1", r"employe|people"),
    "ceo_lastname": ("item_10", r"Chief Executive Officer"),
    "holder_record_amount": ("item_5", r"of record|record holders"),
}
"""Where a fact is stated, and a word that its statements hold."""
STATES = {"headquarters_state", "incorporation_state"}


@pytest.fixture(scope="module")
def filings() -> list[Filing]:
    return packaged_filings()


def sentences(filing: Filing) -> list[tuple[str, str]]:
    """(section, sentence) for all text; no abbreviation but St. and Inc. is followed by a capital in these texts."""
    parts = re.compile(
        r'(?<=[a-z0-9)"%][.])(?<!\bSt[.])(?<!\b(?:Inc|Ltd)[.])(?<!\b(?:Mr|Ms|Co)[.])(?<!Corp[.]) (?=[A-Z"$])'
    )
    lines = ((name, line) for name, text in filing.sections.items() for line in text.split("\n"))
    return [(name, sentence) for name, line in lines for sentence in parts.split(line)]


def written(task: str, value: str) -> re.Pattern[str]:
    """A value as it may be written, not as a part of a longer word or number."""
    if task in {"employees_count_total", "holder_record_amount"}:
        return re.compile(rf"(?<![\d.,])(?:{value}|{int(value):,})(?![.,]?\d)")
    return re.compile(rf"(?<!\w){re.escape(value)}(?!\w)", re.IGNORECASE)


def holding(filing: Filing, task: str) -> list[tuple[str, str]]:
    form = written(task, filing.facts[task])
    return [(section, sentence) for section, sentence in sentences(filing) if form.search(sentence)]


def strays(filing: Filing) -> list[tuple[str, str]]:
    """(task, sentence): sentences that hold a value without stating it, and facts that no or too many sentences state."""
    found = []
    at_home = filing.facts["headquarters_state"] == filing.facts["incorporation_state"]
    for task in USUAL.keys() - {"registrant_name"}:
        cue = "|".join(USUAL[other][1] for other in (STATES if at_home and task in STATES else {task}))
        held = holding(filing, task)
        found += [(task, sentence) for _, sentence in held if not re.search(cue, sentence)]
        most = 4 if at_home and task in STATES else 2
        if not 1 <= len(held) <= most or USUAL[task][0] not in {section for section, _ in held}:
            found.append((task, f"stated {len(held)} times"))
    return found


@pytest.mark.slow
def test_the_reports_are_those_of_the_script(filings: list[Filing]) -> None:
    assert MADE.made_filings() == filings
    assert lzma.decompress(MADE.FILE.read_bytes()) == lzma.decompress(MADE.packed(filings))
    assert packaged_filings(5) == MADE.made_filings(5) == filings[:5]
    assert MADE.made_filings(5, seed=1) != filings[:5]


@pytest.mark.parametrize("n", [0, -3, 241])
def test_a_number_of_reports_that_there_are_not_is_refused(n: int) -> None:
    with pytest.raises(ValueError, match=rf"n={n} is out of range: there are 240 fictional companies; use 1 to 240"):
        packaged_filings(n)


@pytest.mark.slow
def test_every_company_is_another_one() -> None:
    many = MADE.made_filings(480)
    assert len({f.company.split()[0] for f in many}) == len({f.cik for f in many}) == len({f.id for f in many}) == 480


def test_the_sections_of_a_report_are_there_in_order_and_of_realistic_length(filings: list[Filing]) -> None:
    for filing in filings:
        assert list(filing.sections) == list(SECTIONS)
        assert 2_500 <= sum(len(text.split()) for text in filing.sections.values()) <= 6_000
        lines = [line for text in filing.sections.values() for line in text.split("\n") if len(line.split()) > 8]
        assert len(set(lines)) == len(lines)


@pytest.mark.slow
def test_every_value_stands_in_the_sentences_that_state_it_and_nowhere_else(filings: list[Filing]) -> None:
    assert {filing.id: strays(filing) for filing in filings if strays(filing)} == {}


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**9))
def test_the_same_for_any_seed(seed: int) -> None:
    for filing in MADE.made_filings(2, seed):
        assert strays(filing) == []
        assert set(filing.facts) == set(USUAL)


def test_the_check_finds_a_value_that_slips_in(filings: list[Filing]) -> None:
    filing = filings[0]
    for task in USUAL.keys() - {"registrant_name"}:
        text = f"{filing.sections['item_3']}\nThe parties met in {filing.facts[task]} without result."
        sections = filing.sections | {"item_3": text}
        altered = Filing(filing.id, filing.cik, filing.year, filing.company, sections, filing.facts)
        assert task in {found for found, _ in strays(altered)}


def test_the_name_opens_item_1_and_is_mentioned_a_few_times_more(filings: list[Filing]) -> None:
    for filing in filings:
        held = holding(filing, "registrant_name")
        assert [s for section, s in held if section == "item_1" and re.search(USUAL["registrant_name"][1], s)]
        assert 3 <= len(held) <= 6
        stem = filing.company.split()[0]
        assert sum(stem in sentence for _, sentence in sentences(filing)) == len(held)


@pytest.mark.slow
def test_some_facts_are_stated_twice(filings: list[Filing]) -> None:
    for task in USUAL.keys() - STATES - {"registrant_name"}:
        assert 0.08 < sum(len(holding(filing, task)) == 2 for filing in filings) / len(filings) < 0.22


@pytest.mark.slow
def test_statements_are_worded_in_many_ways(filings: list[Filing]) -> None:
    names = "|".join([*WORDS["cities"], *(c for cities in WORDS["cities"].values() for c in cities), *PHRASES["month"]])
    for task, (section, cue) in USUAL.items():
        worded = set()
        for filing in filings:
            for where, sentence in holding(filing, task):
                if where == section and re.search(cue, sentence):
                    plain = written(task, filing.facts[task]).sub("_", sentence)
                    worded.add(" ".join(re.sub(rf"[\d,]+|\b(?:{names})\b", "#", plain).split()[-3:]))
        assert len(worded) >= 6, task


def test_the_most_frequent_value_is_a_bad_guess(filings: list[Filing]) -> None:
    for task in USUAL:
        share = Counter(filing.facts[task] for filing in filings).most_common(1)[0][1] / len(filings)
        assert share < (0.45 if task == "incorporation_state" else 0.20), task


@pytest.mark.slow
def test_other_places_years_people_numbers_and_companies_stand_beside_the_true_ones(filings: list[Filing]) -> None:
    cities = [city for group in WORDS["cities"].values() for city in group]
    kinds = {
        r"[A-Z][a-z]+ (?:Industries|Brothers|Group|Holdings|Systems|Resources)": 4,
        **{
            "|".join(map(re.escape, names)): least
            for names, least in ((cities, 6), (WORDS["cities"], 6), (WORDS["last"], 8))
        },
        r"(?:19|20)\d\d": 8,
        r"\d{1,3}(?:,\d{3})+|\d{3}": 10,
    }
    for filing in filings:
        text, own = "\n".join(filing.sections.values()), set(filing.facts.values())
        for form, least in kinds.items():
            assert len(set(re.findall(rf"\b(?:{form})\b", text)) - own) >= least, (filing.id, form[:30])


def test_no_person_sits_on_the_board_twice(filings: list[Filing]) -> None:
    for filing in filings:
        names = re.findall(
            r"^([A-Z][a-z]+ (?:[A-Z]\. )?[\w']+), (?:age )?\d\d,", filing.sections["item_10"], re.MULTILINE
        )
        assert len(names) >= 4
        assert len({name.split()[-1] for name in names}) == len(names)


@pytest.mark.slow
def test_the_text_is_clean_english(filings: list[Filing]) -> None:
    faults = re.compile(
        r"[{}\[\]|]|  | $| [,.;]|\.\.|,,|\b(\w+) \1\b|\ba (?:[aeioAEIO](?!ne\b|ur)|eight|eleven)|\ban (?![aeiouAEIO]|hour)",
        re.MULTILINE,
    )
    for filing in filings:
        for section, sentence in sentences(filing):
            assert not faults.search(sentence), (filing.id, section, sentence)
            assert not sentence[0].islower(), (filing.id, section, sentence)


def test_the_amounts_agree_with_one_another(filings: list[Filing]) -> None:
    pattern = re.compile(
        r"(in|de)creased (?:by )?([\d.]+) percent (?:in fiscal \d+, )?to \$([\d,.]+) million.*?from \$([\d,.]+)"
    )
    checked = 0
    for filing in filings:
        for way, percent, new, old in pattern.findall(filing.sections["item_7"]):
            change = float(new.replace(",", "")) / float(old.replace(",", "")) - 1
            assert abs(change) * 100 == pytest.approx(float(percent), abs=0.06)
            assert (change > 0) == (way == "in")
            checked += 1
    assert checked > 100


def test_the_word_lists_are_apart_so_that_a_word_is_one_kind_of_value() -> None:
    cities = [city for group in WORDS["cities"].values() for city in group]
    firsts, seconds = {*WORDS["men"], *WORDS["women"]}, {second for entry in INDUSTRIES for second in entry["second"]}
    stems = {start + end for start in WORDS["stem_starts"] for end in WORDS["stem_ends"]}
    groups = [set(cities), {*WORDS["cities"], "Delaware"}, firsts, set(WORDS["last"]), stems, seconds]
    assert sum(map(len, groups)) == len(set.union(*groups))
    assert len(cities) == len(set(cities)) >= 120
    assert len(INDUSTRIES) >= 12
    assert "Delaware" not in WORDS["cities"]


def test_no_pattern_has_a_number_of_its_own_that_a_fact_could_have() -> None:
    text = "".join((DATA / f"{name}.json").read_text() for name in ("sections", "industries", "phrases", "statements"))
    bare = re.findall(r"(?<![\d.,])\d[\d,]*\b", re.sub(r"\{[^{}]*\}|\"take\": \[[^\]]*\]", "", text))
    numbers = {int(number.replace(",", "")) for number in bare}
    assert not {number for number in numbers if 130 <= number <= 9_800 and number != 1934}


def test_every_slot_of_every_pattern_has_words_in_some_industry() -> None:
    text = "".join(file.read_text() for file in DATA.glob("*.json"))
    slots = {slot.lower() for slot in re.findall(r"\{([A-Za-z_]+)[^{}]*\}", text)} - {"stem", "second"}
    reports = [MADE._Report(company, random.Random(0)) for company in MADE.companies(12, 0)]
    assert slots <= set.union(*(report.known for report in reports))
