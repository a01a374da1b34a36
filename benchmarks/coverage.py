"""How often do the intervals of `stats` contain the true value? Simulated at the sizes that studies use.

Run: python benchmarks/coverage.py    appends to results/coverage.jsonl (about a minute)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import record
import torch

from lens_heads.stats import Interval, crossed_interval, mean_interval, paired_share_interval, ratio_interval

STUDIES, BLOCKS = 1500, 20
"""Simulated studies of a design; those of plain means, all at once, have so many blocks of them."""
SHAPES: dict[str, tuple[Callable[..., np.ndarray], float]] = {
    "normal": (lambda rng, size: rng.standard_normal(size), 0.0),
    "exponential": (lambda rng, size: rng.exponential(size=size), 1.0),
    "minus exponential": (lambda rng, size: -rng.exponential(size=size), -1.0),
    "lognormal": (lambda rng, size: rng.lognormal(size=size), float(np.exp(0.5))),
}


def tensor(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(values, dtype=float))


def means(rng: np.random.Generator) -> list[dict[str, Any]]:
    rows = []
    for shape, (draw, truth) in SHAPES.items():
        for n in (6, 12, 28, 100):
            blocks = [mean_interval(tensor(draw(rng, (n, STUDIES)))) for _ in range(BLOCKS)]
            low, high = (torch.cat(ends).numpy() for ends in zip(*blocks, strict=True))
            rows.append({"of": f"mean, {shape}", "n": str(n)} | missed(low, high, truth))
    return rows


def missed(low: np.ndarray, high: np.ndarray, truth: float) -> dict[str, float]:
    """How many intervals contain the truth, and how many lie on either side of it."""
    above, below = float((low > truth).mean()), float((high < truth).mean())
    return {"studies": len(low), "covered": 1 - above - below, "too_high": above, "too_low": below}


def simulated(of: str, n: str, truth: float, study: Callable[[], Interval]) -> dict[str, Any]:
    found = [study() for _ in range(STUDIES)]
    low, high = (np.array([getattr(one, end) for one in found]) for end in ("low", "high"))
    return {"of": of, "n": n} | missed(low, high, truth)


def designs(rng: np.random.Generator) -> list[dict[str, Any]]:
    def crossed(draws: int, trials: int) -> Interval:
        sets, each = rng.normal(0, 0.5, (draws, 1)), rng.normal(0, 1, trials)
        return crossed_interval(tensor(sets + each + rng.normal(0, 0.7, (draws, trials))), n=500)

    def broken(draws: int, trials: int) -> Interval:
        """One set in twenty breaks the task, at 3 nats; the others do next to nothing."""
        sets = rng.normal(0, 0.1, (draws, 1)) + 3 * (rng.random((draws, 1)) < 0.05)
        return crossed_interval(tensor(sets + rng.normal(0, 0.3, trials) + rng.normal(0, 0.3, (draws, trials))), n=500)

    def clustered(kinds: int) -> Interval:
        labels = [rng.integers(14, size=100), rng.integers(30, size=100)][:kinds]
        values = rng.normal(0, 0.7**0.5, 100) + sum(rng.normal(0, 0.3**0.5, 30)[label] for label in labels)
        _, low, high = mean_interval(tensor(values), groups=[label.tolist() for label in labels], n=500)
        return Interval(float(values.mean()), float(low), float(high))

    def ratio(n: int) -> Interval:
        below = rng.normal(4, 1, n)
        return ratio_interval(tensor(0.5 * below + rng.normal(0, 1, n))[None], tensor(below)[None], n=500)

    def shares(n: int) -> Interval:
        first = rng.random(n) < 0.8
        return paired_share_interval(first.astype(float), (first & (rng.random(n) < 0.25)).astype(float))

    rows = [
        simulated("mean, crossed", f"{draws} draws x {trials} trials", 0, lambda d=draws, t=trials: crossed(d, t))
        for draws, trials in ((5, 12), (12, 20), (40, 20), (50, 20))
    ]
    rows += [
        simulated(
            "mean, one set in 20 breaks",
            f"{draws} draws x {trials} trials",
            0.15,
            lambda d=draws, t=trials: broken(d, t),
        )
        for draws, trials in ((10, 16), (40, 20), (199, 20))
    ]
    rows.append(simulated("mean, 14 clusters, ICC .3", "100", 0, lambda: clustered(1)))
    rows.append(simulated("mean, 14 x 30 clusters", "100", 0, lambda: clustered(2)))
    rows += [simulated("ratio", str(n), 0.5, lambda n=n: ratio(n)) for n in (12, 28, 100)]
    rows += [simulated("difference of shares", str(n), 0.6, lambda n=n: shares(n)) for n in (12, 28, 100)]
    return rows


def main() -> None:
    rng = np.random.default_rng(0)
    rows = [*means(rng), *designs(rng)]
    for row in rows:
        print({name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()})
    record.append("coverage", {"level": 0.95, "intervals": rows})


if __name__ == "__main__":
    main()
