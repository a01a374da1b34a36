"""The dates, counts and amounts of a fictional filing, consistent with one another."""

from __future__ import annotations

import math
import random

_YEAR_ENDS = (("December 31", "March", 1), ("June 30", "September", 0), ("September 30", "December", 0))
_YEARLIKE = range(1900, 2100)
_WHEN = ("now", "last", "before")


def count(rng: random.Random, low: int, high: int) -> int:
    """A log-uniform count from low to high, sometimes rounded, never one that looks like a year."""
    exact = round(math.exp(rng.uniform(math.log(low), math.log(high))))
    value = round(exact, -1 if exact < 1000 else -2) if rng.random() < 0.3 else exact
    return count(rng, low, high) if value in _YEARLIKE else value


def dates(year: int, inc_year: int, rng: random.Random) -> dict[str, str]:
    """Fiscal years, the filing's date, and the years of past events, none of which is the year of incorporation."""
    year_end, month, later = rng.choice(_YEAR_ENDS)
    joined = rng.randint(year - 18, year - 8)
    named = {"ceo_joined": joined, "ceo_named": rng.randint(max(joined + 1, year - 10), year - 1)}
    past = {"founded": inc_year - rng.randint(4, 40), "ipo": rng.randint(inc_year + 2, year - 9)}
    past["bought"] = rng.randint(year - 8, year - 3)
    fiscal = {"fy": year, "last": year - 1, "before": year - 2, "next": year + 1}
    years = {slot: str(value) for slot, value in (fiscal | past | named).items()}
    filed = f"{month} {rng.randint(1, 28)}, {year + later}"
    return years | {"fye": year_end, "filed": filed, "ceo_age": str(rng.randint(48, 66))}


def counts(employees: int, holders: int, rng: random.Random) -> dict[str, str]:
    """Distractor counts of people and shares, close to the true ones but different."""
    few = {"part_time": (0.05, 0.30), "union": (0.04, 0.18), "subsidiary_staff": (0.15, 0.40), "seasonal": (0.05, 0.20)}
    people = {slot: employees * rng.uniform(*share) for slot, share in few.items()}
    people["staff_before"] = employees * rng.choice((rng.uniform(0.85, 0.97), rng.uniform(1.03, 1.15)))
    people["beneficial_holders"] = holders * rng.uniform(4, 20)
    shares = {
        "shares": f"{rng.randint(4_000_000, 90_000_000):,}",
        "authorized": rng.choice(("100", "120", "150", "200")),
    }
    return {slot: f"{round(value):,}" for slot, value in people.items()} | shares


def amounts(year: int, employees: int, rng: random.Random) -> dict[str, str]:
    """Three years of results in millions, the changes and ratios that follow from them, and stock prices."""
    sales = [round(employees * rng.uniform(0.12, 0.40), 1)]
    for _ in range(2):
        sales.append(round(sales[-1] / (1 + rng.choice((1, 1, -1)) * rng.uniform(0.02, 0.14)), 1))
    level = rng.uniform(0.62, 0.80)
    cost = [level + rng.uniform(-0.012, 0.012) for _ in sales]
    overhead = [round(value * rng.uniform(0.095, 0.105), 1) for value in sales]
    operating = [round(sold * (1 - share) - spent, 1) for sold, share, spent in zip(sales, cost, overhead, strict=True)]
    tax = rng.randint(34, 39) if year < 2018 else rng.randint(22, 27)
    net = [(value - 0.02 * sold) * (1 - tax / 100) for value, sold in zip(operating, sales, strict=True)]
    series = {"rev": sales, "op": operating, "net": net, "sga": overhead}
    money = {f"{slot}_{when}": values[i] for slot, values in series.items() for i, when in enumerate(_WHEN)}
    shares = {"debt": 0.24, "line": 0.40, "assets": 0.85, "capex": 0.05, "cash_flow": 0.11, "paid": 0.06}
    money |= {slot: sales[0] * share * rng.uniform(0.9, 1.1) for slot, share in shares.items()}
    money["interest"] = 0.02 * sales[0]
    written = {slot: f"{value:,.1f}" for slot, value in money.items()} | {"tax": str(tax)}
    return written | _changes(sales, operating, cost) | _prices(rng)


def _changes(sales: list[float], operating: list[float], cost: list[float]) -> dict[str, str]:
    words = {"good": "good" if operating[0] > operating[1] else "difficult"}
    for i, when in enumerate(_WHEN[:2]):
        words[f"growth_{when}"] = f"{abs(sales[i] / sales[i + 1] - 1):.1%}".rstrip("%")
        words[f"rose_{when}"] = "increased" if sales[i] > sales[i + 1] else "decreased"
        words[f"cost_share_{when}"] = f"{cost[i]:.1%}".rstrip("%")
    return words


def _prices(rng: random.Random) -> dict[str, str]:
    middle = rng.uniform(7, 60)
    around = {"low_now": 0.8, "mid_now": 1.0, "high_now": 1.2, "low_last": 0.7, "high_last": 1.1}
    return {slot: f"{middle * factor * rng.uniform(0.95, 1.05):.2f}" for slot, factor in around.items()}
