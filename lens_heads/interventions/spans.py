"""Spans of a prompt that an intervention is for: one for all prompts, one for each trial or prompt of a batch, or named parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias, cast, get_args

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lens_heads.runs import checks
from lens_heads.trials.digests import Encoded
from lens_heads.trials.encoded import EncodedTrial

Span: TypeAlias = tuple[int, int]
Part: TypeAlias = Literal["needle", "last"]
Spans: TypeAlias = tuple[Span, ...] | Part
"""Half-open (start, end), in tokens from a prompt's first, without padding; or each trial's needle, or its prompt's last row."""
NEEDLE: Part = "needle"
LAST: Part = "last"
PLACE, END = "place", "end"


def spans_of(name: str, given: Any) -> Spans:
    """One span, a list of them, or a part's name. ValueError for anything else."""
    if isinstance(given, str) and given in get_args(Part):
        return cast(Part, given)
    listed = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    pairs = [listed] if len(listed) == 2 and all(checks.whole(each) is not None for each in listed) else listed
    found = []
    for pair in pairs:
        ends = [checks.whole(each) for each in pair] if isinstance(pair, Iterable) and not isinstance(pair, str) else []
        start, end = ends if len(ends) == 2 else (None, None)
        if start is None or end is None or not 0 <= start < end <= checks.LARGEST:
            raise ValueError(
                f"{name}={given!r:.60}: must be a pair (start, end) of tokens, start < end, a list of one per prompt, "
                "or 'needle' or 'last' (row of the prompt)"
            )
        found.append((start, end))
    if not found:
        raise ValueError(f"{name}={given!r}: there is no span: pass (start, end)")
    return tuple(found)


def parts_of(trials: Sequence[EncodedTrial], room: int | None = None) -> dict[str, Int[Tensor, "trial 2"]]:
    """The named parts of these trials' prompts: "last", and "needle" if all have one, as texts do not.

    And `PLACE`, each trial's place in the list that a call was given and its length, by which a list of spans finds its trials;
    and `END`, up to which each is run, if the `room` for generated tokens is known.
    """
    found = {"last": torch.tensor([(len(trial.tokens) - 1, len(trial.tokens)) for trial in trials])}
    needles = [getattr(trial, "needle", None) for trial in trials]
    places = [getattr(trial, "place", None) for trial in trials]
    found |= {"needle": torch.tensor(needles)} if None not in needles else {}
    found |= {END: ends_of(trials, room)[:, None].expand(-1, 2)} if room is not None else {}
    return found | ({PLACE: torch.tensor(places)} if None not in places else {})


def spans_in_batch(
    spans: Sequence[Span], places: Int[Tensor, "batch 2"] | None, prompts: int, batch: int
) -> Int[Tensor, "#prompt 2"]:
    """One span for all prompts, or each prompt's own: by the `places` of its trial in the call's list if known, else by its row.

    `batch`: rows of the batch, all prompts as often as there are variants. ValueError for another number of spans than trials
    or prompts.
    """
    given = torch.tensor(spans)
    if len(spans) == 1:
        return given
    if places is None:
        check_number(len(spans), prompts, "prompts in the batch")
        return given
    check_number(len(spans), int(places[0, 1]), "trials")
    return given[places[:batch, 0]]


def check_number(spans: int, n: int, what: str) -> None:
    """ValueError for another number of spans than one, or one for each."""
    if spans not in (1, n):
        raise ValueError(
            f"there are {spans} spans, but {n} {what}: pass one span for each, in their order, or one for all"
        )


def ends_of(trials: Sequence[Encoded], room: int) -> Int[Tensor, " trial"]:
    """The tokens that are run of each trial, with its answer or `room` generated ones; texts have no answer."""
    longest = [
        max([room, *map(len, (getattr(trial, "answer_tokens", ()), *getattr(trial, "choice_tokens", ())))])
        for trial in trials
    ]
    return torch.tensor([len(trial.tokens) + more for trial, more in zip(trials, longest, strict=True)])


def check_within(spans: Int[Tensor, "#prompt 2"], ends: Int[Tensor, " prompt"]) -> None:
    """ValueError for a span that begins behind all that is run of its prompt, and is thus of no row."""
    starts = spans[:, 0].expand(len(ends)) if len(spans) == 1 else spans[: len(ends), 0]
    beyond = (starts >= ends[: len(starts)]).nonzero()
    if len(beyond):
        at = int(beyond[0])
        raise ValueError(
            f"the span from token {int(starts[at])} on begins behind the {int(ends[at])} tokens of prompt and answer, so that "
            "nothing would be changed: pass one inside the prompt, or 'needle' or 'last'"
        )


def inside(
    spans: Int[Tensor, "#prompt 2"] | None, places: Int[Tensor, " place"], pads: Int[Tensor, "#batch"], batch: int
) -> Bool[Tensor, "#batch place"]:
    """Which places lie in the prompts' spans, which are counted from behind their padding; all places without spans.

    `batch`: rows of the batch, all prompts as often as there are variants.
    """
    if spans is None:
        return torch.ones(1, len(places), dtype=torch.bool, device=places.device)
    starts, ends = spans.to(places.device).T
    if len(spans) > 1:
        starts, ends = (each.repeat(batch // len(spans)) for each in (starts, ends))
    return (places >= (pads + starts)[:, None]) & (places < (pads + ends)[:, None])
