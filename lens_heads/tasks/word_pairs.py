"""Word pairs: a relation shown by examples alone (antonym, past tense, capital), as function-vector heads were found with."""

from __future__ import annotations

import random
from typing import Literal

from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.tasks.capitals import country_capitals
from lens_heads.tasks.sampling import check_known, check_split, enough, half
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial

RELATIONS = ("antonym", "past tense", "capital")
LABELS = ("true", "shuffled")


@typed
def word_pairs(
    *,
    n: int | None = None,
    relation: str = "antonym",
    shots: int = 10,
    labels: Literal["true", "shuffled"] = "true",
    split: str | None = None,
    seed: int = 0,
    chat: bool | None = False,
) -> list[Trial]:
    """A word whose partner is asked for, after examples of other words: "Q: hot\\nA: cold\\n\\nQ: big\\nA:".

    Args, besides those of `lens_heads.tasks`:
        n: number of trials, each with a word of its own; None: all of the split.
        relation: "antonym", "past tense", or "capital" (of a country).
        shots: examples before the question, other words of the same split; 0 for none.
        labels: "shuffled" gives the examples each other's answers, so that they show the form and not the relation; a single
            example gets the answer of a word that is not shown. No example is true.
        split: every other word.

    Returns:
        Trials with ids such as "antonym-10-true-hot" (relation, shots, labels, word); the same arguments and seed with
        other `shots` or `labels` ask for the same words. `meta` holds relation, shots and labels. Correct if the first line
        contains the partner.

    After the tasks of Todd et al. (arXiv 2310.15213), with their prompt's form.

    Example:
        >>> trial = lh.tasks.word_pairs(n=1)[0]
        >>> print(trial.question.splitlines()[-1], "->", trial.answer)
        A: -> enemy
    """
    check_known("relation", relation, RELATIONS)
    check_known("labels", labels, LABELS)
    check_split(split)
    written = template("word_pairs")
    known = country_capitals() if relation == "capital" else written["relations"][relation]
    pairs = half(list(known.items()), split)
    checks.whole_number("shots", shots, 0, len(pairs) - 1, ", the other words of the split")
    rng = random.Random(f"word_pairs-{relation}-{split}-{checks.seed(seed)}")
    asked = rng.sample(pairs, enough(n, len(pairs), "words of this relation", len(pairs)))
    trials = []
    for word, answer in asked:
        shown = rng.sample([pair for pair in pairs if pair[0] != word], shots)
        answers = [partner for _, partner in shown]
        if labels == "shuffled" and shots > 1:
            turn = rng.randrange(1, shots)  # Everyone gets another's.
            answers = [*answers[turn:], *answers[:turn]]
        elif labels == "shuffled" and shots:
            answers = [rng.choice([partner for other, partner in pairs if other not in (word, shown[0][0])])]
        examples = "".join(
            written["shot"].format(word=other, answer=partner)
            for (other, _), partner in zip(shown, answers, strict=True)
        )
        trial = Trial(
            id=f"{relation.replace(' ', '-')}-{shots}-{labels}-{word}",
            question=examples + written["asked"].format(word=word),
            answer=answer,
            template="{question}",
            chat=chat,
            meta={"kind": relation, "shots": shots, "labels": labels},
            judge=judge(written),
            group=f"word_pairs {relation} {word}",
        )
        trials.append(trial)
    return trials
