"""Colored Objects: what colour has one of three objects? The task whose circuit shares heads with IOI's (arXiv 2310.08744)."""

from __future__ import annotations

import random

from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.tasks.sampling import SPLITS, check_known
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial

OBJECTS: dict[str, tuple[str, ...]] = {
    "select": ("cup", "book", "pencil", "lamp", "shirt", "bag", "ball", "key", "plate", "clock", "box", "hat"),
    "test": ("bowl", "pen", "chair", "coat", "ring", "bottle", "card", "shoe", "spoon", "rope", "tray", "mirror"),
}
COLOURS: tuple[str, ...] = ("red", "blue", "green", "black", "white", "yellow", "purple", "orange", "brown", "pink")


@typed
def colored_objects(*, n: int = 100, split: str = "select", seed: int = 0, chat: bool | None = False) -> list[Trial]:
    """Three coloured objects, one answered question about other objects, and the question about one of the three.

    Args, besides those of `lens_heads.tasks`:
        n: number of trials, each with its own objects and colours.
        split: which twelve objects to use; the two share none.

    Returns:
        Trials with ids such as "colored_objects-select-0-17" (split, seed, number); the choices are the three colours. `meta`
        holds the objects and the place of the one that is asked (0 to 2). The counterfactual is the same question about another
        of the three, which flips the answer (a pair, if both objects have the same number of tokens).

    Written after BIG-bench's "reasoning about colored objects" as Merullo et al. use it, with other objects and words.

    Example:
        >>> trial = lh.tasks.colored_objects(n=1)[0]
        >>> trial.answer in trial.choices, trial.meta["place"]
        (True, 0)
    """
    check_known("split", split, SPLITS)
    checks.count("n", n)
    rng, written = random.Random(f"colored_objects-{split}-{checks.seed(seed)}"), template("colored_objects")
    trials: list[Trial] = []
    for number in range(n):
        objects, colours = rng.sample(OBJECTS[split], 6), rng.sample(COLOURS, 6)
        shown, listed = (_scene(written, objects[at : at + 3], colours[at : at + 3]) for at in (0, 3))
        at, other = rng.sample(range(3), 2)
        example = rng.randrange(3)
        start = f"{shown} {written['asking'].format(object=objects[example])} {colours[example]}\n{listed} "
        question, corrupt = (start + written["asking"].format(object=objects[3 + i]) for i in (at, other))
        trial = Trial(
            id=f"colored_objects-{split}-{seed}-{number}",
            question=question,
            answer=colours[3 + at],
            template=written["template"],
            chat=chat,
            meta={
                "kind": "colored_objects",
                "objects": tuple(objects[3:]),
                "place": at,
                "corrupt_answer": colours[3 + other],
            },
            judge=judge(written, labels=COLOURS),
            corrupt=corrupt,
            choices=tuple(colours[3:]),
        )
        trials.append(trial)
    return trials


def _scene(written: dict[str, str], objects: list[str], colours: list[str]) -> str:
    articles = ["an" if colour[0] in "aeiou" else "a" for colour in colours]
    things = [" ".join(parts) for parts in zip(articles, colours, objects, strict=True)]
    return written["scene"].format(things=f"{things[0]}, {things[1]} and {things[2]}")
