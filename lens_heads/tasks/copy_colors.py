"""Copy colours: an object's colour is told; which letter marks it among the choices? Binding of a letter to its meaning."""

from __future__ import annotations

import random
from collections.abc import Sequence

from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.tasks.colored_objects import COLOURS, OBJECTS
from lens_heads.tasks.sampling import SPLITS, check_known
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial

LETTERS = "ABCD"


@typed
def copy_colors(
    *, n: int = 100, split: str = "select", seed: int = 0, choices: int = 4, chat: bool | None = False
) -> list[Trial]:
    """Multiple choice by letter: "The hat is blue. What color is the hat?", after two answered questions of the same kind.

    Args, besides those of `lens_heads.tasks`:
        n: number of trials, each with its own objects and colours.
        split: which twelve objects to use; the two share none.
        choices: 2 to 4 colours, of which one is right.

    Returns:
        Trials with ids such as "copy_colors-select-0-17" (split, seed, number); the answer and the choices are letters. `meta`
        holds the object, its colour and the place of the right choice. The counterfactual is the same question with the
        choices in another order, so that another letter is right.

    Written after the task of Wiegreffe et al. (arXiv 2407.15018) that the Mechanistic Interpretability Benchmark takes (arXiv
    2504.13151), with other words, and with answered examples, which small models need to answer by letter.

    Example:
        >>> trial = lh.tasks.copy_colors(n=1)[0]
        >>> print(trial.question)
        The pencil is red. What color is the pencil?
        A. brown
        B. black
        C. white
        D. red
        Answer: D
        The clock is white. What color is the clock?
        A. green
        B. blue
        C. white
        D. yellow
        Answer: C
        The cup is yellow. What color is the cup?
        A. yellow
        B. orange
        C. green
        D. white
        Answer:
    """
    check_known("split", split, SPLITS)
    checks.count("n", n)
    checks.whole_number("choices", choices, 2, len(LETTERS), ", a letter each")
    rng, written = random.Random(f"copy_colors-{split}-{checks.seed(seed)}"), template("copy_colors")
    trials: list[Trial] = []
    for number in range(n):
        objects = rng.sample(OBJECTS[split], 3)
        offered = [rng.sample(COLOURS, choices) for _ in objects]
        places = [rng.randrange(choices) for _ in objects]
        shots = [
            f"{_asked(written, *shown)} {LETTERS[shown[2]]}"
            for shown in zip(objects[:2], offered[:2], places[:2], strict=True)
        ]
        listed, at, turn = offered[2], places[2], rng.randrange(1, choices)
        turned = [*listed[turn:], *listed[:turn]]
        question, corrupt = (
            "\n\n".join([*shots, _asked(written, objects[2], order, order.index(listed[at]))])
            for order in (listed, turned)
        )
        trial = Trial(
            id=f"copy_colors-{split}-{seed}-{number}",
            question=question,
            answer=LETTERS[at],
            template=written["template"],
            chat=chat,
            meta={
                "kind": "copy_colors",
                "object": objects[2],
                "color": listed[at],
                "place": at,
                "corrupt_answer": LETTERS[turned.index(listed[at])],
            },
            judge=judge(written, labels=tuple(LETTERS[:choices])),
            corrupt=corrupt,
            choices=tuple(LETTERS[:choices]),
        )
        trials.append(trial)
    return trials


def _asked(written: dict[str, str], name: str, listed: Sequence[str], at: int) -> str:
    choices = "\n".join(f"{letter}. {colour}" for letter, colour in zip(LETTERS, listed, strict=False))
    return written["asking"].format(object=name, color=listed[at], choices=choices)
