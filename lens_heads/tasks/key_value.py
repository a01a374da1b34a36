"""Key-value look-up: a JSON object of random keys and values, and the question which value a key has   (AttentionInfluence)."""

from __future__ import annotations

import json
import random

from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.tasks.sampling import SPLITS, check_known
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial

HEX = "0123456789abcdef"


@typed
def key_value(
    *,
    n: int = 100,
    pairs: int = 10,
    characters: int = 32,
    shots: int = 3,
    split: str | None = None,
    seed: int = 0,
    chat: bool | None = False,
) -> list[Trial]:
    """JSON objects of random hexadecimal keys and values, `shots` answered look-ups, and one to answer: copying without meaning.

    Args, besides those of `lens_heads.tasks`:
        n: number of trials, each with an object of its own.
        pairs: keys of an object, more than `shots`.
        characters: of each key and value; the paper's 32. Small models need fewer.
        shots: answered look-ups before the question.
        split: the two share no object.

    Returns:
        Trials with ids such as "key_value-select-0-17" (split, seed, number). The needle is the line of the key that is asked;
        `meta` holds its 0-based place among the lines. Correct if the first line of the text is the value.

    Example:
        >>> trial = lh.tasks.key_value(n=1, pairs=4, characters=4, shots=1)[0]
        >>> trial.answer in trial.needle
        True
    """
    if split is not None:
        check_known("split", split, SPLITS, ", or None for both")
    checks.count("n", n)
    checks.whole_number("shots", shots, 0)
    checks.whole_number("pairs", pairs, shots + 1, remedy=", since every look-up asks another key")
    checks.whole_number("characters", characters, 4, 64)
    rng, written = random.Random(f"key_value-{split}-{checks.seed(seed)}"), template("key_value")
    trials: list[Trial] = []
    for number in range(n):
        words = ["".join(rng.choices(HEX, k=characters)) for _ in range(2 * pairs)]
        listed = dict(zip(words[:pairs], words[pairs:], strict=True))
        *shown, asked = rng.sample(list(listed), shots + 1)
        lines = json.dumps(listed, indent=1)
        examples = [written["question"].format(key=key) + f" {listed[key]}" for key in shown]
        trial = Trial(
            id=f"key_value-{split or 'all'}-{seed}-{number}",
            question="\n".join([*examples, written["question"].format(key=asked)]),
            answer=listed[asked],
            needle=lines,
            needle_focus=f'"{asked}": "{listed[asked]}"',
            template=written["template"],
            chat=chat,
            meta={"kind": "key_value", "place": list(listed).index(asked)},
            judge=judge(written),
        )
        trials.append(trial)
    return trials
