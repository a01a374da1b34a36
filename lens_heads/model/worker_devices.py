"""Which devices workers get."""

from __future__ import annotations

from math import inf
from numbers import Real
from typing import Any

import torch

from lens_heads.model.copies import SEVERAL
from lens_heads.runs import checks


def each_takes(num_gpus: float) -> float:
    """The GPUs of each worker. ValueError for what Ray cannot give: a number below 0, or above 1 and not whole."""
    if (
        isinstance(num_gpus, bool)
        or not isinstance(num_gpus, Real)
        or not 0 < num_gpus < inf
        or (num_gpus > 1 and num_gpus % 1)
    ):
        raise ValueError(f"num_gpus={num_gpus!r}: use a whole number of GPUs, or a share of one such as 0.5")
    return num_gpus


def check_workers(how: int | str | None, num_gpus: float = 1) -> None:
    """ValueError for workers that cannot be, before a model is loaded for them. Only a cluster knows its own devices."""
    each = each_takes(num_gpus)
    if how is not None and not (isinstance(how, str) and how.startswith("ray://")):
        devices_of(how, None, each)


def devices_of(how: int | str, ray: Any, num_gpus: float) -> list[str]:
    """The device of every worker. "cuda" is the GPU that Ray gives it. ValueError for none."""
    mine = "cuda" if num_gpus <= 1 else SEVERAL
    if isinstance(how, str) and how.startswith("ray://"):
        there = ray.cluster_resources()
        return [mine] * int(there.get("GPU", 0) / num_gpus) or ["cpu"] * max(1, int(there.get("CPU", 1)))
    here = torch.cuda.device_count()
    if how == "auto":
        return [mine] * int(here / num_gpus) or ["cpu"]
    named = isinstance(how, str) and not how.isdecimal()
    if num_gpus != 1 and (named or not here):
        raise ValueError(f"num_gpus={num_gpus}: workers={how!r} are not given GPUs by their number")
    if named:
        names = [name.strip() for name in str(how).split(",")]
        wrong = next((name for name in names if name != "cpu" and not _exists(name)), None)
        if wrong is not None:
            raise ValueError(
                f"workers={how!r}: there is no device {wrong!r} here; use a number, 'auto', 'cuda:0,cuda:1' or 'ray://...'"
            )
        return names
    number = checks.whole_number("workers", int(how) if isinstance(how, str) else how)
    if here and number * num_gpus > here:
        raise ValueError(f"workers={number}, num_gpus={num_gpus}: there are {here} GPUs here")
    return [mine if here else "cpu"] * number


def _exists(name: str) -> bool:
    try:
        torch.empty(0, device=name)
    except Exception:  # torch raises RuntimeError, AssertionError and others
        return False
    return True
