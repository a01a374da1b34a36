"""Look: what one pass saw of one trial, head by head, as tensors with names and as frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
from jaxtyping import Float, Int
from torch import Tensor

from lens_heads.heads.head import AnyHeads, Head, parse_heads
from lens_heads.runs import checks
from lens_heads.runs.drawn import Tabled
from lens_heads.runs.tensor_files import load_tensors, save_tensors
from lens_heads.runs.typed import typed_methods

TENSORS = ("tokens", "produced", "logprobs", "attention", "phi", "z", "writes", "top_ids", "top_logits")
_ABOUT = (
    "model",
    "trial",
    "answer",
    "direction",
    "rows",
    "needle",
    "question",
    "words",
    "produced_words",
    "vocabulary",
)


@typed_methods
@dataclass(frozen=True, eq=False)
class Look(Tabled):
    """What a pass saw of one trial. On the CPU; float16 where that holds the numbers, else float32.

    Axis `step`: the tokens of the answer looked at. `rows[step]` is the position whose row produces `produced[step]`, with
    log-probability `logprobs[step]` (nats). Axis `head`: `heads`.

    Attributes:
        tokens [position], words: the prompt and the steps that were fed after it, as ids and as text.
        attention: how much the row attends to each position; 0 after the row and outside a window.
        phi: what each position contributes to the token's logit through the head, by `direction` ("raw", "exact" or the name of a
            tuned lens). Over positions it sums to the head's write, projected.
        z, writes: the head's output before and after W_O, at the row; before a post-attention norm.
        top_ids, top_logits: the tokens that the write raises most (side 0) and lowers most (side 1), as if it stood alone, by the
            model's own norms and unembedding (`model.readout`). `vocabulary` has their text.
        needle, question: spans of the prompt, or None.

    `model`, `trial`, `answer`: their names. `produced_words`: the steps as text.

    Example:
        >>> seen = lh.look(model, trials[0], heads)
        >>> [str(head) for head in seen.heads], seen.produced_words
        (['L1H0', 'L0H0'], ('A',))
    """

    model: str
    trial: str
    answer: str
    direction: str
    heads: tuple[Head, ...]
    rows: tuple[int, ...]
    words: tuple[str, ...]
    produced_words: tuple[str, ...]
    needle: tuple[int, int] | None
    question: tuple[int, int] | None
    tokens: Int[Tensor, " position"]
    produced: Int[Tensor, " step"]
    logprobs: Float[Tensor, " step"]
    attention: Float[Tensor, "head step position"]
    phi: Float[Tensor, "head step position"]
    z: Float[Tensor, "head step d_head"]
    writes: Float[Tensor, "head step d_model"]
    top_ids: Int[Tensor, "head step side k"]
    top_logits: Float[Tensor, "head step side k"]
    vocabulary: dict[int, str] = field(default_factory=dict)

    def places(self, heads: AnyHeads) -> list[int]:
        """Where heads are on the axis `head`. ValueError for none, and for one that was not looked at."""
        known = {head: place for place, head in enumerate(self.heads)}
        wanted = parse_heads(heads)
        if not wanted:
            raise ValueError("heads is empty: name at least one")
        missing = next((head for head in wanted if head not in known), None)
        if missing is not None:
            shown = ", ".join(map(str, self.heads[:8])) + (", ..." if len(self.heads) > 8 else "")
            raise ValueError(f"head {missing} was not looked at: there is {shown}")
        return [known[head] for head in wanted]

    def only(self, heads: AnyHeads, *, steps: int | None = None) -> Look:
        """The same look at some of its heads, at its first `steps` steps. ValueError for none, and for a head not looked at."""
        if steps is not None:
            checks.whole_number("steps", steps)
        places, first = self.places(heads), slice(steps)
        per_head = ("attention", "phi", "z", "writes", "top_ids", "top_logits")
        per_step = ("rows", "produced_words", "produced", "logprobs")
        parts: dict[str, Any] = {name: getattr(self, name)[places][:, first] for name in per_head}
        parts |= {name: getattr(self, name)[first] for name in per_step}
        return replace(self, heads=tuple(self.heads[at] for at in places), **parts)

    def by_token(self, heads: AnyHeads, *, step: int = 0) -> pd.DataFrame:
        """What heads together read at one step: a row per position up to the step's own.

        Columns: position, token, part ("needle", "question" or ""), attention (mean over the heads), phi (their sum), share (of
        the sum of |phi|).
        """
        places, end = self.places(heads), self.rows[self._step(step)] + 1
        phi = self.phi[places, step, :end].float().sum(0)
        whole = float(phi.abs().sum())
        return pd.DataFrame(
            {
                "position": range(end),
                "token": self.words[:end],
                "part": [self.part(at) for at in range(end)],
                "attention": self.attention[places, step, :end].float().mean(0),
                "phi": phi,
                "share": phi.abs() / whole if whole else 0 * phi,
            }
        )

    @property
    def by_head(self) -> pd.DataFrame:
        """A row per head and step.

        Columns: head, step, token (produced), phi (sum over positions), needle and question (of it, from there; NaN without),
        attention_needle, attention_first (to the first position), raises and lowers (the tokens, separated by spaces).
        """
        rows: list[dict[str, Any]] = []
        for place, head in enumerate(self.heads):
            for step, token in enumerate(self.produced_words):
                phi, attention = self.phi[place, step].float(), self.attention[place, step].float()
                raised, lowered = (" ".join(map(repr, self.top_words(head, step=step, side=side))) for side in (0, 1))
                row = {"head": str(head), "step": step, "token": token, "phi": float(phi.sum())}
                row |= {"needle": _within(phi, self.needle), "question": _within(phi, self.question)}
                row |= {"attention_needle": _within(attention, self.needle), "attention_first": float(attention[0])}
                rows.append({**row, "raises": raised, "lowers": lowered})
        return pd.DataFrame(rows)

    @property
    def frame(self) -> pd.DataFrame:
        """`by_head`: a row per head and step."""
        return self.by_head

    def top_words(self, head: Head | str, *, step: int = 0, side: int = 0) -> list[str]:
        """The tokens that a head's write raises (side 0) or lowers (side 1) most at a step, as text."""
        if side not in (0, 1):
            raise ValueError(f"side={side!r}: use 0 for raised tokens, 1 for lowered ones")
        ids = self.top_ids[self.places([head])[0], self._step(step), side]
        return [self.vocabulary[token] for token in ids.tolist()]

    def part(self, position: int) -> str:
        """Which part of the prompt a position is in: "needle", "question" or ""."""
        checks.whole_number("position", position, 0)
        for name in ("needle", "question"):
            span = getattr(self, name)
            if span is not None and span[0] <= position < span[1]:
                return name
        return ""

    def save(self, path: str | Path) -> Path:
        """Write a safetensors file. OSError naming it if that fails."""
        about = {name: getattr(self, name) for name in _ABOUT} | {"heads": [str(head) for head in self.heads]}
        return save_tensors(path, {name: getattr(self, name) for name in TENSORS}, about)

    @classmethod
    def load(cls, path: str | Path) -> Look:
        """Read what `save` wrote. FileNotFoundError if there is no such file, ValueError if it is damaged or another one."""
        return load_tensors(path, cls._made, "a saved look", "save a look there first")

    @classmethod
    def _made(cls, tensors: dict[str, Tensor], about: dict[str, Any]) -> Look:
        about["heads"] = tuple(Head.parse(head) for head in about["heads"])
        about["vocabulary"] = {int(token): str(text) for token, text in about["vocabulary"].items()}
        for name in ("rows", "words", "produced_words", "needle", "question"):
            about[name] = None if about[name] is None else tuple(about[name])
        parts: dict[str, Any] = {**about, **tensors}
        found = cls(**parts)
        shape = (len(found.heads), len(found.rows), len(found.words))
        if found.attention.shape != shape or found.phi.shape != shape:
            raise ValueError(
                f"attention {list(found.attention.shape)} and phi {list(found.phi.shape)} must be {list(shape)}"
            )
        return found

    def __repr__(self) -> str:
        said = "".join(self.produced_words)
        return f"Look({self.model}, trial {self.trial}: {len(self.heads)} heads, {len(self.words)} tokens, answer {said!r})"

    def _step(self, step: int) -> int:
        if not -len(self.rows) <= step < len(self.rows):
            raise ValueError(f"step={step}: the look has {len(self.rows)} steps, from 0: {self.produced_words}")
        return step


def _within(values: Float[Tensor, " position"], span: Sequence[int] | None) -> float:
    return float("nan") if span is None else float(values[span[0] : span[1]].sum())
