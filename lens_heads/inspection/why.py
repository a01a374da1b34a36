"""why: which heads write this answer to this prompt, from which tokens, and what is left without them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any, Literal

import pandas as pd

from lens_heads.answering.evaluation import evaluate
from lens_heads.answering.ordinary import ordinary_means
from lens_heads.heads.controls import AnyControls, Controls
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.head import Head
from lens_heads.heads.ranks import check_ranks
from lens_heads.heads.scores import HeadScores
from lens_heads.inspection.explorer.contents import best_heads, contents, default_scores
from lens_heads.inspection.explorer.recorded import record
from lens_heads.inspection.explorer.stored import HEADS, STEPS
from lens_heads.inspection.explorer.trying import Tried, attempt
from lens_heads.inspection.look import look
from lens_heads.inspection.look_results import Look
from lens_heads.interventions.activations import MeanActivations
from lens_heads.model.geometry import Model, head_geometry, require_raw_weights
from lens_heads.runs import checks
from lens_heads.runs.drawn import Tabled
from lens_heads.runs.showing import visible
from lens_heads.runs.typed import typed
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.own import check_prompt_texts, prompt_trial

BESIDE = Controls("random", draws=40)
"""The controls by default."""

WRITTEN = "dla_exact"
"""What a head contributes to the answer's logit, from all positions: the norms frozen, so that contributions add up."""
TOKENS = 5
"""Tokens named in the sentence."""


@dataclass(frozen=True, eq=False)
class Why(Tabled):
    """The answer of `why`. Print it for sentences; `frame` has the heads, `tokens` what they read.

    `trial`: the prompt and the answer. `heads`: the k that write it most (from the needle, where there is one). `scores`: all
    heads, by name; the first ranks them. `look`: what the best heads read and wrote. `tried`: the answer's log-probability and
    the model's text without these heads, beside as many random ones. `reference`: of mean ablation, in words.

    `shape`: layers, and heads in each.

    Example:
        >>> few = lh.Controls("random", draws=1)
        >>> found = lh.why(model, "xyz (b=B) xyz ?", "B", k=2, kind="zero", controls=few, max_new_tokens=1)
        >>> found.heads, found.frame.columns.tolist()
        ((Head(1, 0), Head(0, 0)), ['head', 'dla_exact', 'contribution', 'needle', 'reads', 'raises'])
    """

    shape: HeadGeometry
    trial: EncodedTrial
    heads: tuple[Head, ...]
    scores: dict[str, HeadScores]
    look: Look
    tried: Tried
    reference: str = ""

    @property
    def right(self) -> bool:
        """Whether what the model writes by itself, greedily, begins with the answer."""
        return self.tried.right or self.tried.text_before.strip().startswith(self.trial.answer.strip())

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row per head.

        Columns: head, the score that ranks them, contribution (logits, mean over the answer's tokens), needle (of it, from
        there), reads (the tokens that it takes most from), raises (those that its write promotes).
        """
        lead = next(iter(self.scores.values()))
        rows: list[dict[str, Any]] = []
        for head in self.heads:
            read = self._read([head])
            inside = read[read["part"] == "needle"]["phi"].sum() if self.trial.needle else float("nan")
            row = {
                "head": str(head),
                lead.method: lead[head],
                "contribution": self.scores[WRITTEN][head],
                "needle": inside,
            }
            row |= {
                "reads": _listed(read.nlargest(3, "phi")["token"]),
                "raises": _listed(self.look.top_words(head)[:3]),
            }
            rows.append(row)
        return pd.DataFrame(rows)

    @cached_property
    def tokens(self) -> pd.DataFrame:
        """What the heads together read, a row per token, the largest contribution first: the columns of `Look.by_token`."""
        return self._read(self.heads).sort_values("phi", ascending=False, kind="stable", ignore_index=True)

    @property
    def payload(self) -> dict[str, Any]:
        """The data of the explorer on a page, which opens on these heads."""
        found = record(
            contents(self.shape, self.scores, [self.look.trial]), [self.look.only(self.look.heads, steps=STEPS)]
        )
        return {**found, "traits": {**found["traits"], "heads": list(map(str, self.heads))}}

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answer in words: what the model says, which heads write it, from which tokens, and what is left without them."""
        tried, whole = self.tried, float(self.scores[WRITTEN].values.nansum())
        said = f"{_quoted(self.trial.answer)} has log-probability {tried.before:.2f} (nats per token)"
        gives = f"{self.shape.name} gives this answer: {said}."
        if not self.right:
            gives = f"{self.shape.name} does not give this answer: it writes {_quoted(tried.text_before)}. {said}."
        where = ", from the needle" if self.trial.needle else ""
        write = (
            f"Heads that write most towards it{where}: {', '.join(map(str, self.heads))}. Together they change its logit by "
            f"{self.frame['contribution'].sum():+.2f}, all heads of the model by {whole:+.2f}."
        )
        best = [row for row in self.tokens.head(TOKENS).to_dict("records") if row["phi"] > 0]
        named = ", ".join(f"{_quoted(row['token'])} at {row['position']} ({row['phi']:+.2f})" for row in best)
        inside = f" From the needle: {self.frame['needle'].sum():+.2f}." if self.trial.needle else ""
        take = f"They take it from {named}.{inside}" if best else "Through them, no token raises it."
        return gives, write, take, self._without()

    def _without(self) -> str:
        """What is left without the heads, in a sentence, and without random ones in another."""
        tried = self.tried
        lost = (
            f"Without them ({tried.kind} ablation), it has {tried.after:.2f}, and the model writes "
            f"{_quoted(tried.text_after)}."
        )
        if tried.random is None:
            return lost
        spread = f"{tried.random:.2f} [{tried.random_low:.2f}, {tried.random_high:.2f}]"
        sets = "one set" if tried.draws == 1 else f"{tried.draws} sets"
        return (
            f"{lost} Without as many random heads: {spread}, mean and range of {sets}, of which {tried.as_much} cost as much or "
            "more."
        )

    def __repr__(self) -> str:
        return f"Why({self.shape.name}, {self.trial.answer!r}: {', '.join(map(str, self.heads))})"

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{escape(line)}</p>" for line in self.sentences)
        return said + self.frame.to_html(index=False, float_format=lambda x: f"{x:.3f}")

    def _read(self, heads: Any) -> pd.DataFrame:
        """`Look.by_token` as a mean over the steps looked at; a token that a step does not see contributes nothing there."""
        steps = range(len(self.look.rows))
        frames = [self.look.by_token(heads, step=step) for step in steps]
        found = frames[-1].copy()
        for name in ("attention", "phi"):
            found[name] = sum(frame[name].reindex(found.index, fill_value=0.0) for frame in frames) / len(frames)
        whole = found["phi"].abs().sum()
        return found.assign(share=found["phi"].abs() / whole if whole else 0.0)


@typed
def why(
    model: Model,
    prompt: str,
    answer: str | None = None,
    *,
    needle: str | None = None,
    question: str | None = None,
    k: int = 5,
    kind: Literal["mean", "zero"] = "mean",
    reference: MeanActivations | None = None,
    chat: bool | None = False,
    controls: AnyControls = BESIDE,
    max_new_tokens: int = 20,
) -> Why:
    """Which heads write this answer, from which tokens, and what is left without them?

    Args:
        model: a TransformerBridge or HookedTransformer with raw weights.
        prompt: the text, fed as it is (`chat=True` wraps it in the chat template).
        answer: what should follow; None explains what the model itself writes. Whether a space comes before it is decided by what
            the model finds likelier.
        needle: the part of the prompt that holds the answer. Heads are then ranked by what they write from there (exact LOCOS);
            without it, by all that they contribute to the answer's logit, and the tokens that it comes from are found.
        question: the part that asks, only to mark it.
        k: how many heads to name and to ablate together.
        kind, reference: of the ablation. "mean" without a reference takes the means over eight packaged prompts, which are
            ordinary prose with a question.
        controls: "random": sets of k random heads beside it.
        max_new_tokens: of the model's texts.

    Takes eight passes for the means, two for the answer, one to score, one to look, three to ablate, and one for
    each set of random heads. One prompt is no evidence for other prompts: for a claim about a task, use `score_heads` and
    `ablation_curve`.

    Raises ValueError for processed weights, an empty prompt, a needle or question that does not occur once, a prompt beyond the
    context window, k beyond the number of heads, and a model that writes nothing where `answer` is None.

    Example:
        >>> few = lh.Controls("random", draws=1)
        >>> found = lh.why(model, "xyz (b=B) xyz ?", "B", needle="(b=B)", k=2, kind="zero", controls=few, max_new_tokens=1)
        >>> str(found).splitlines()[1].split(". ")[0]
        'Heads that write most towards it, from the needle: L1H0, L0H0'
    """
    require_raw_weights(model)
    shape = head_geometry(model)
    checks.whole_number("k", k, 1, shape.size, ", the number of heads")
    controls = Controls.given(controls, BESIDE, ("random",), few=False, several=False)
    check_asked(prompt, answer, needle, question, k, kind, max_new_tokens)
    given = answer if answer is not None else _own_answer(model, prompt, chat, max_new_tokens)
    parts = {"needle": needle, "question": question, "chat": chat}
    trial = _likelier(
        model, [prompt_trial(model.tokenizer, prompt, given, spaced=spaced, **parts) for spaced in (True, False)]
    )
    means = (
        ordinary_means(model, "use kind='zero', or reference=") if kind == "mean" and reference is None else reference
    )
    scores = default_scores(model, [trial])
    lead = next(iter(scores.values()))
    check_ranks({lead.method: lead}, [k])
    heads = tuple(lead.ranking()[:k])
    shown = [*map(str, heads), *best_heads(contents(shape, scores, [trial.id]), HEADS // len(scores))]
    seen = look(model, trial, heads=list(dict.fromkeys(shown))[: max(k, HEADS)])
    tried = attempt(model, trial, heads, kind, means, controls, max_new_tokens)
    said = "eight packaged prompts" if reference is None else f"{len(reference.trial_ids)} given trials"
    return Why(shape, trial, heads, scores, seen, tried, f"; means of {said}" if kind == "mean" else "")


def check_asked(
    prompt: str,
    answer: str | None,
    needle: str | None,
    question: str | None,
    k: int,
    kind: str,
    max_new_tokens: int,
) -> None:
    """ValueError for what `why` refuses whatever the model."""
    checks.whole_number("k", k)
    checks.whole_number("max_new_tokens", max_new_tokens)
    if kind not in ("mean", "zero"):
        raise ValueError(f"kind={kind!r}: use 'mean' or 'zero'")
    check_prompt_texts(prompt, answer, needle=needle, question=question)


def _likelier(model: Model, trials: list[EncodedTrial]) -> EncodedTrial:
    """The trial whose answer has the higher probability; the first if both are the same."""
    lengths = [len(trial.answer_tokens) for trial in trials]
    found = [evaluate(model, trial, generate=False, progress=False).mean("logprob") for trial in trials]
    return trials[max(range(len(trials)), key=lambda at: found[at] * lengths[at])]


def _own_answer(model: Model, prompt: str, chat: bool | None, max_new_tokens: int) -> str:
    """What the model writes after the prompt, up to the end of the line. ValueError if that is nothing."""
    trial = prompt_trial(model.tokenizer, prompt, "?", chat=chat)
    found = evaluate(model, trial, max_new_tokens=max_new_tokens, progress=False).texts[0].strip()
    if not found:
        raise ValueError("the model writes nothing after this prompt, so there is no answer to explain: pass answer=")
    return found


def _quoted(text: str) -> str:
    return f"“{visible(text)}”"


def _listed(words: Any) -> str:
    return " ".join(map(_quoted, words))
