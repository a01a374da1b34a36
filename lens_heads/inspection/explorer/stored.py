"""What an explorer shows of a run, in the run's folder: scores, and what the best heads read of a few trials."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from lens_heads.heads.named import AnyRankings
from lens_heads.inspection.explorer.contents import AblationCurveLike, best_heads, check_made, contents
from lens_heads.inspection.explorer.recorded import record
from lens_heads.inspection.look import look
from lens_heads.inspection.look_results import Look
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.runs.files import write_atomic
from lens_heads.runs.reading import read_json, reason
from lens_heads.trials.checked_tokens import encode_all, trial_list
from lens_heads.trials.trial import AnyTrial

FOLDER, ABOUT = "explorer", "about.json"
TRIALS, HEADS, STEPS = 3, 24, 6
"""How much is looked at, so that a page stays small: trials, heads (those that the scores rank first), answer tokens."""


def store(
    folder: Path,
    model: Model,
    trials: Iterable[AnyTrial] | AnyTrial,
    scores: AnyRankings,
    curve: AblationCurveLike | None = None,
) -> Path:
    """Look at the first trials, one pass each, and store `about.json` and a safetensors file per trial in the folder.

    Nothing runs again where the same is stored already. ValueError for scores of another model, or that rank no head, and for
    what `look` refuses.
    """
    shape = head_geometry(model)
    chosen = encode_all(trial_list(trials)[:TRIALS], model.tokenizer, shape.n_ctx, 0, shape.d_vocab, judged=False)
    about = contents(shape, scores, [trial.id for trial in chosen], curve=curve)
    check_made(model, scores, curve)
    text, file = json.dumps(about, allow_nan=False) + "\n", folder / ABOUT
    if file.exists() and file.read_text(encoding="utf-8") == text:
        return folder
    heads = best_heads(about, max(1, HEADS // len(about["scores"])))[:HEADS]
    if not heads:
        raise ValueError("the scores rank no head: there is nothing to explore")
    for at, trial in enumerate(chosen):
        steps = range(min(STEPS, len(trial.answer_tokens)))
        look(model, trial, heads, steps=steps).save(folder / f"{at}.safetensors")
    write_atomic(file, text)
    return folder


def stored(folder: Path) -> dict[str, Any]:
    """A page's data (`record`) from what `store` wrote. FileNotFoundError without it, ValueError for damaged files."""
    about = read_json(folder / ABOUT)
    try:
        _check(about)
        looks = [Look.load(folder / f"{at}.safetensors") for at in range(len(about["trials"]))]
        return record(about, looks)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, FileNotFoundError) as error:
        raise ValueError(f"{folder} holds no whole explorer ({reason(error)}): repeat the run") from None


def _check(about: Any) -> None:
    """An error unless this has the parts of an explorer, in their shapes; what a page shows of them is text anyway."""
    shape = (about["layers"], about["heads"])
    listed = all(isinstance(about[name], list) for name in ("ablated", "scores", "trials"))
    if not isinstance(about["model"], str) or not listed or not about["scores"] or not about["trials"]:
        raise ValueError(f"{ABOUT} lacks its parts")
    for score in about["scores"]:
        for name in ("values", "ranks"):
            if np.array(score[name], dtype=float).shape != shape:
                raise ValueError(f"{name} of {score['name']} are not of {shape[0]} layers and {shape[1]} heads")


def folders(run: Path) -> list[Path]:
    """The explorers stored anywhere in a run folder, in order of their paths."""
    return sorted(file.parent for file in run.rglob(f"{FOLDER}/{ABOUT}"))
