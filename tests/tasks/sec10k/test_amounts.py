"""Dates come in order, counts of some people are fewer than of all, percentages follow from the amounts printed."""

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.scripts import script

MADE = script("annual_reports")
amounts, count, counts, dates = MADE.amounts, MADE.count, MADE.counts, MADE.dates

seeds = st.integers(0, 10**9)


def _number(text: str) -> float:
    return float(text.replace(",", ""))


@given(seeds)
def test_a_count_is_in_range_and_never_reads_as_a_year(seed: int) -> None:
    value = count(random.Random(seed), 1_880, 2_120)
    assert 1_880 <= value <= 2_120
    assert not 1_900 <= value < 2_100


@given(seeds, st.integers(2005, 2022), st.integers(20, 60))
def test_what_came_first_has_the_earlier_year(seed: int, year: int, age: int) -> None:
    drawn = dates(year, year - age, random.Random(seed))
    assert int(drawn["founded"]) < year - age < int(drawn["ipo"]) < int(drawn["bought"]) < year
    assert int(drawn["ceo_joined"]) < int(drawn["ceo_named"]) < year == int(drawn["fy"])
    assert drawn["filed"].endswith((str(year), str(year + 1)))


@given(seeds, st.integers(140, 9_800), st.integers(130, 9_500))
def test_some_of_the_staff_are_fewer_than_all_and_owners_behind_brokers_more_than_holders(
    seed: int, employees: int, holders: int
) -> None:
    drawn = counts(employees, holders, random.Random(seed))
    assert max(_number(drawn[part]) for part in ("part_time", "union", "subsidiary_staff", "seasonal")) < employees
    assert _number(drawn["staff_before"]) != employees
    assert _number(drawn["beneficial_holders"]) > holders
    assert _number(drawn["shares"]) < _number(drawn["authorized"]) * 1e6


@given(seeds, st.integers(2005, 2022), st.integers(140, 9_800))
def test_changes_follow_from_the_amounts_printed(seed: int, year: int, employees: int) -> None:
    drawn = amounts(year, employees, random.Random(seed))
    for now, before in (("now", "last"), ("last", "before")):
        change = _number(drawn[f"rev_{now}"]) / _number(drawn[f"rev_{before}"]) - 1
        assert drawn[f"growth_{now}"] == f"{abs(change):.1%}".rstrip("%")
        assert drawn[f"rose_{now}"] == ("increased" if change > 0 else "decreased")
    assert (drawn["good"] == "good") == (_number(drawn["op_now"]) > _number(drawn["op_last"]))
    assert float(drawn["low_now"]) < float(drawn["mid_now"]) < float(drawn["high_now"])
    assert _number(drawn["net_now"]) < _number(drawn["op_now"]) < _number(drawn["rev_now"])
