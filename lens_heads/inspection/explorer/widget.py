"""explore: an interactive view of what heads read and write, in a notebook, with ablation and patching a click away."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args

import pandas as pd

from lens_heads.model.identity import identify, warn_of_change

try:
    import anywidget
    import traitlets
except ImportError as error:
    raise ImportError(f"lh.explore needs the package {error.name}: pip install 'lens-heads[explorer]'") from error

from lens_heads.heads.controls import AnyControls, Controls
from lens_heads.heads.head import Head, parse_heads
from lens_heads.heads.matching import HeadMatch
from lens_heads.heads.named import AnyRankings, by_name
from lens_heads.heads.ranks import warn_of_nothing
from lens_heads.inspection.cards import HeadCards
from lens_heads.inspection.explorer.contents import (
    AblationCurveLike,
    best_heads,
    check_made,
    contents,
    default_scores,
)
from lens_heads.inspection.explorer.recorded import TOP, asset, record, start
from lens_heads.inspection.explorer.rows import prompt, rows, tops
from lens_heads.inspection.explorer.trying import Try, attempt
from lens_heads.inspection.look import look
from lens_heads.inspection.look_results import Look
from lens_heads.interventions.activations import MeanActivations, mean_activations
from lens_heads.model.geometry import Model, head_geometry, require_raw_weights
from lens_heads.model.hooks import attached
from lens_heads.runs import checks
from lens_heads.runs.showing import one_line
from lens_heads.runs.typed import typed
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.trial import AnyTrial

BESIDE = Controls("random")
"""The controls by default."""

KEPT = 8
"""Looks in memory."""


class Explorer(anywidget.AnyWidget):
    """The widget that `explore` returns.

    `heads`: the chosen heads, as names; set them, or click. `trial`, `step`: which prompt, and which token of its answer.
    `history`: what was tried; `frame` gives it as a table.

    `about`: what is said of the model and its rankings. `model`, `trials`, `reference`, `direction`, `controls`,
    `max_new_tokens`: as `explore` was given them, in tokens and checked.

    Example:
        >>> found = lh.explore(model, trials[:1], scores)
        >>> found.heads = ["L0H1"]
        >>> isinstance(found, lh.Explorer), found.heads
        (True, ['L0H1'])
    """

    _esm = asset("explorer.js")
    _css = asset("explorer.css")

    about: Any = traitlets.Dict().tag(sync=True)
    heads: Any = traitlets.List().tag(sync=True)
    trial: Any = traitlets.Int(0).tag(sync=True)
    step: Any = traitlets.Int(0).tag(sync=True)
    method: Any = traitlets.Unicode("").tag(sync=True)
    across: Any = traitlets.Unicode("").tag(sync=True)
    view: Any = traitlets.Unicode("map").tag(sync=True)
    look: Any = traitlets.Dict().tag(sync=True)
    rows: Any = traitlets.Bytes(b"").tag(sync=True)
    rows_of: Any = traitlets.Dict().tag(sync=True)
    history: Any = traitlets.List().tag(sync=True)
    busy: Any = traitlets.Unicode("").tag(sync=True)
    failed: Any = traitlets.Unicode("").tag(sync=True)

    def __init__(
        self,
        model: Model,
        trials: list[EncodedTrial],
        about: dict[str, Any],
        reference: MeanActivations | None,
        direction: str | Path,
        controls: Controls,
        max_new_tokens: int,
    ) -> None:
        self._model, self._trials, self._reference = model, trials, reference
        self._direction, self._controls, self._room = direction, controls, max_new_tokens
        self._looks: dict[int, Look] = {}
        self._found: dict[int, MeanActivations] = {}
        self._under = attached(model)
        super().__init__(**start(about, best_heads(about, 1)[:1] or ["L0H0"]))
        self._fill()
        self.observe(self._fill, ["heads", "trial"])
        self.on_msg(self._asked)

    @traitlets.validate("heads")
    def _known_heads(self, proposal: Any) -> list[str]:
        found = head_geometry(self._model).check_heads(parse_heads(proposal["value"]))
        if not found:
            raise traitlets.TraitError("heads is empty: choose at least one")
        return [str(head) for head in found]

    @traitlets.validate("trial")
    def _known_trial(self, proposal: Any) -> int:
        if not 0 <= proposal["value"] < len(self._trials):
            raise traitlets.TraitError(f"trial={proposal['value']}: there are {len(self._trials)}, counted from 0")
        return int(proposal["value"])

    @traitlets.validate("step")
    def _known_step(self, proposal: Any) -> int:
        return checks.whole_number("step", proposal["value"], 0)

    def _fill(self, change: Any = None) -> None:
        """Look at the trial, if not yet done, and send the rows of the chosen heads. The page says what fails."""
        try:
            seen, chosen = self._seen(), list(self.heads)
        except Exception as error:
            self.failed = _said(error)
            raise
        about = {"trial": self.trial, "heads": chosen, "tops": tops(seen, chosen), "note": ""}
        with self.hold_sync():  # One message: the page must not draw new rows as old heads'.
            self.look, self.rows, self.rows_of = prompt(seen), rows(seen, chosen), about

    def _changed(self) -> bool:
        """Whether the model has other hooks (an ablation) or weights than at the last look. What is kept is then forgotten."""
        now = attached(self._model), identify(self._model, again=False).weights
        if now == self._under:
            return False
        self._under = now
        self._looks.clear()
        self._found.clear()
        return True

    def _seen(self) -> Look:
        """The look at the current trial; those at the last few trials are kept."""
        self._changed()
        found = self._looks.pop(self.trial, None)
        if found is None:
            found = look(self._model, self._trials[self.trial], direction=self._direction)
        self._looks[self.trial] = found
        while len(self._looks) > KEPT:
            del self._looks[next(iter(self._looks))]
        return found

    def _asked(self, widget: Any, content: Any, buffers: Any) -> None:
        """A button of the page: {"run": kind, "heads": [...], "trial": number}, for a click may overtake a choice of heads."""
        if not isinstance(content, dict) or content.get("run") not in get_args(Try):
            return
        kind, self.failed = content["run"], ""
        try:
            self.trial, self.heads = content.get("trial", self.trial), content.get("heads", self.heads)
            self.busy = f"running {kind} on {', '.join(self.heads)} ..."
            self.run(kind)
        except Exception as error:  # The page shows it; the notebook has no cell to raise it in.
            self.failed = _said(error)
        finally:
            self.busy = ""

    def run(self, kind: Literal["mean", "zero", "patch"]) -> dict[str, Any]:
        """Ablate or patch the chosen heads on the current trial, as the buttons do; returns the new row of `history`."""
        if self._changed():
            self._fill()
        heads = [Head.parse(head) for head in self.heads]
        reference = self._means() if kind == "mean" else None
        trial = self._trials[self.trial]
        found = attempt(self._model, trial, heads, kind, reference, self._controls, self._room).row()
        self.history = [*self.history, found]
        return found

    def _means(self) -> MeanActivations:
        """The means given, else of all other trials than the current one. ValueError if there is no other."""
        if self._reference is not None or self.trial in self._found:
            return self._reference or self._found[self.trial]
        others = [trial for at, trial in enumerate(self._trials) if at != self.trial]
        if not others:
            raise ValueError(
                "mean ablation needs other trials: explore several, or pass reference=mean_activations(...)"
            )
        self._found[self.trial] = mean_activations(self._model, others, n=None, progress=False)
        return self._found[self.trial]

    @property
    def payload(self) -> dict[str, Any]:
        """The data of a page that shows, without a kernel, the trials opened last: their best and the chosen heads."""
        self._seen()
        shown = [str(head) for head in dict.fromkeys([*self.heads, *best_heads(self.about, TOP)])]
        opened = sorted(self._looks)
        about = {**self.about, "trials": [self.about["trials"][at] for at in opened], "experiments": []}
        found = record(about, [self._looks[at].only(shown) for at in opened])
        chosen = {"heads": list(self.heads), "history": list(self.history), "method": self.method}
        return {**found, "traits": {**found["traits"], **chosen, "trial": opened.index(self.trial), "step": self.step}}

    @property
    def frame(self) -> pd.DataFrame:
        """What was tried, a row each: the fields of `trying.Tried`."""
        return pd.DataFrame(self.history)


def _said(error: Exception) -> str:
    return one_line(error) or type(error).__name__


@typed
def explore(
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial,
    rankings: AnyRankings | None = None,
    *,
    curve: AblationCurveLike | None = None,
    cards: HeadCards | None = None,
    match: HeadMatch | None = None,
    reference: MeanActivations | None = None,
    direction: str | Path = "exact",
    controls: AnyControls = BESIDE,
    max_new_tokens: int = 20,
) -> Explorer:
    """Explore heads in a notebook: where they look, what they contribute from there, what they write, and what is left without.

    Args:
        model: a TransformerBridge or HookedTransformer with raw weights.
        trials: prompts with an answer; those with a needle show it.
        rankings: one HeadScores, several, or what `score_heads` returns; None scores the trials by five methods (by direct logit
            attribution if they have no needle).
        curve: an AblationCurve, whose costs are listed beside the map.
        cards: `lh.describe(model)`, whose kinds and tokens join the chosen heads' table.
        match: a HeadMatch from this model to another: names every head's partner.
        reference: means for mean ablation; None takes those of the other trials.
        direction: of the contributions, as in `lh.look`.
        controls: "random": sets of random heads beside every experiment.
        max_new_tokens: of the texts before and after.

    The first look at a trial takes one pass; choosing heads takes none. Raises ImportError without the extra `explorer`,
    ValueError for no trials, scores of another model, and what `look` refuses.

    Example:
        >>> explorer = lh.explore(model, trials)
        >>> type(explorer).__name__
        'Explorer'
    """
    require_raw_weights(model)
    warn_of_change(model, "what is shown")
    shape = head_geometry(model)
    controls = Controls.given(controls, BESIDE, ("random",), few=False, several=False)
    checks.whole_number("max_new_tokens", max_new_tokens)
    encoded = encode_all(trials, model.tokenizer, shape.n_ctx, max_new_tokens, shape.d_vocab, judged=False)
    rankings = default_scores(model, encoded) if rankings is None else by_name(rankings)
    about = contents(shape, rankings, [trial.id for trial in encoded], str(direction), curve, cards, match)
    check_made(model, rankings, curve, reference, cards, match)
    warn_of_nothing(rankings)
    alone = "needs several trials, or reference=" if reference is None and len(encoded) == 1 else ""
    about["experiments"] = [("mean", alone), ("zero", ""), ("patch", "")]
    about["reference"] = "the other trials" if reference is None else f"{len(reference.trial_ids)} given trials"
    return Explorer(model, encoded, about, reference, direction, controls, max_new_tokens)
