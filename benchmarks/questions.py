"""Does the question decide, and can models choose by it? On selection trials alone, so that test trials stay unseen.

Packaged trials with one needle, and with two of one kind between which the question chooses: how likely the answer is with its
own question, with another, and without the needle; with two needles, how often and how surely models choose the right answer
under both questions of a passage, by kind of question and of answer.

Run: python benchmarks/questions.py --model gemma-3-270m    appends to results/questions.jsonl (about half an hour)
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
import record
import torch

import lens_heads as lh

ONE_NEEDLE, TWO_NEEDLES = ("onehop", "direct"), ("direct", "onehop", "twohop")
LENGTH = 320


def trials(needles: int, questions: str, n: int, chat: bool | None) -> list[lh.Trial]:
    return lh.tasks.packaged(
        split="select", n=n, context_length=LENGTH, questions=questions, chat=chat, distractors=needles - 1, seed=7
    )


def needed(model: Any, asked: list[lh.Trial], batch: int) -> dict[str, Any]:
    """How likely answers are with their question, another one, and no needle, and what share another question takes."""
    found = lh.question_need(model, asked, batch_size=batch)
    print(found, flush=True)
    word = {True: "decides", False: "does not decide", None: "cannot be told"}[found.decides]
    share = found.share()._asdict() | {"word": word, "trials": len(found.asked.trial_ids)}
    return {"prompts": found.frame.to_dict("records"), "share": share, "right": found.asked.mean("greedy_match")}


def able(model: Any, asked: list[lh.Trial], batch: int) -> dict[str, Any]:
    """Choices under both questions, in all and by kind of answer, and every trial's."""
    found = lh.ability(model, asked, batch_size=batch)
    print(found, flush=True)
    assert found.exchanged is not None
    kept = {trial.id: trial for trial in asked}
    rows = pd.DataFrame(
        {
            "trial": list(found.asked.trial_ids),
            **{key: [kept[id].meta[key] for id in found.asked.trial_ids] for key in ("kind", "answers", "style")},
            "asked": found.asked.metrics["choice_margin"].tolist(),
            "exchanged": found.exchanged.metrics["choice_margin"].tolist(),
        }
    ).round(3)
    by = {}
    for name in sorted(set(rows["answers"])):
        ids = rows.loc[rows["answers"] == name, "trial"].tolist()
        part = lh.answering.Ability(found.asked.of(ids), found.exchanged.of([f"{id}-exchanged" for id in ids]), 0.5)
        by[name] = {"trials": len(ids), "choice": part.choice()._asdict(), "margin": part.margin()._asdict()}
    whole = {"choice": found.choice()._asdict(), "margin": found.margin()._asdict(), "does": found.does}
    return {**whole, "by_answer": by, "trials": rows.to_dict("records")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gemma-3-270m", help="a name that lens_heads.load_model takes")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--n", type=int, default=60, help="trials of each kind")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--chat", action="store_true", help="frame prompts by the model's chat template")
    parser.add_argument("--ability-alone", action="store_true", help="two needles alone, and no prompts without them")
    given = parser.parse_args()
    model = lh.load_model(given.model, dtype=getattr(torch, given.dtype))
    one, two = {}, {}
    for questions in () if given.ability_alone else ONE_NEEDLE:
        one[questions] = needed(model, trials(1, questions, given.n, given.chat), given.batch_size)
    for questions in TWO_NEEDLES:
        asked = trials(2, questions, given.n, given.chat)
        two[questions] = able(model, asked, given.batch_size)
        if not given.ability_alone:
            two[questions] |= {"need": needed(model, asked, given.batch_size)}
    about = {
        "model": Path(model.cfg.model_name).name,
        "dtype": given.dtype,
        "chat": given.chat,
        "n": given.n,
        "length": LENGTH,
    }
    record.append("questions", {**about, "one_needle": one, "two_needles": two})


if __name__ == "__main__":
    main()
