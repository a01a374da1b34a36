"""IOI: indirect object identification, whose circuit in GPT-2 is known (Wang et al., ICLR 2023, arXiv 2211.00593)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, permutations, product

from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.tasks.packaged import entries
from lens_heads.tasks.sampling import enough
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial


@typed
def ioi(
    *,
    n: int | None = 100,
    split: str = "select",
    seed: int = 0,
    symmetric: bool = False,
    names: Sequence[str] | str | None = None,
    templates: Sequence[str] | str | None = None,
    nouns: Mapping[str, Sequence[str]] | None = None,
    chat: bool | None = False,
) -> list[Trial]:
    """Sentences about two people that stop before the indirect object, such as "Then, Sarah and Peter went to the store.
    Sarah gave the milk to", with the templates and nouns of `transformer_lens.evals.IOIDataset`.

    Args, besides those of `lens_heads.tasks`:
        n: number of trials, all with distinct prompts.
        split: which names to use, the 14 names of either half of the packaged needles; the two share none.
        symmetric: follow every sentence with its copy that swaps the two names; `n` must be even.
        names: names to use instead of those of `split`; `IOIDataset`'s own are "John" and "Mary".
        templates: templates to use instead of `IOIDataset`'s two, in its format: "[B]" is the subject, "[A]" the indirect
            object (the last word), and nouns are slots such as "[OBJECT]".
        nouns: the values of each noun slot, by name.

    Returns:
        Trials with ids such as "ioi-select-Peter-Sarah-0"; the choices are the indirect object, which is the answer, and the
        subject. `meta` holds the kind and both names. The counterfactual is the prompt whose last subject is the other name,
        which flips the answer (a pair, if both names have the same number of tokens). The two names are the group.

    Differs from `IOIDataset`: no prompt is drawn twice, and there are more names. `ioi_eval` compares the names' first
    differing tokens; choices are compared by all their tokens.

    Example:
        >>> trial = lh.tasks.ioi(n=1)[0]
        >>> print(trial.question, "->", trial.answer)
        Then, Joseph and Louis went to the market. Joseph gave the bread to -> Louis
    """
    from transformer_lens.evals import IOIDataset

    source = split if names is None else "own"
    if names is None:
        names = sorted({name for entry in entries(split) for name in entry.characters})
    names = _several(names, "names", 2)
    texts = _several(IOIDataset.get_default_templates() if templates is None else templates, "templates", 1)
    given = IOIDataset.get_default_nouns() if nouns is None else nouns
    frames = list(dict.fromkeys(frame for text in texts for frame in _frames(text, given)))
    pairs = list((combinations if symmetric else permutations)(names, 2))
    each = 2 if symmetric else 1
    n = enough(n, each * len(frames) * len(pairs), "distinct prompts with these names, templates and nouns")
    if n % each:
        raise ValueError(f"n={n} must be even with symmetric=True, which draws sentences in pairs")
    drawn = random.Random(checks.seed(seed)).sample(range(len(frames) * len(pairs)), n // each)
    chosen = [(frames[at % len(frames)], pairs[at // len(frames)]) for at in drawn]
    cast = [(frame, people) for frame, (a, b) in chosen for people in ((a, b), (b, a))[:each]]
    return [
        _trial(frame, *people, f"{source}-{'-'.join(people)}-{at}", chat) for at, (frame, people) in enumerate(cast)
    ]


def _several(given: Sequence[str] | str, what: str, least: int) -> list[str]:
    """The distinct texts of a list; ValueError if there are too few."""
    found = list(dict.fromkeys([given] if isinstance(given, str) else given))
    if len(found) < least or not all(isinstance(text, str) and text.strip() for text in found):
        raise ValueError(f"{what}={given!r} must be a list of {least} or more distinct texts")
    return found


def _frames(text: str, nouns: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """A template with every combination of nouns filled in; ValueError for one without two people."""
    if text.count("[A]") < 2 or text.count("[B]") < 2 or not text.endswith(" [A]"):
        raise ValueError(
            f"the template {text!r} lacks a placeholder: use '[B]' (subject) twice, and '[A]' (indirect object) twice, "
            "the second time as the last word"
        )
    used = [noun for noun in nouns if f"[{noun}]" in text]
    for words in product(*(_several(nouns[noun], f"nouns {noun}", 1) for noun in used)):
        frame = text
        for noun, word in zip(used, words, strict=True):
            frame = frame.replace(f"[{noun}]", word)
        yield frame


def _trial(frame: str, indirect: str, subject: str, name: str, chat: bool | None) -> Trial:
    prompt = frame.removesuffix(" [A]").replace("[A]", indirect)
    before, _, after = prompt.rpartition("[B]")
    before = before.replace("[B]", subject)
    shots = template("multiple_choice")["ioi"]
    return Trial(
        id=f"ioi-{name}",
        question=before + subject + after,
        answer=indirect,
        template=shots["template"],
        chat=chat,
        meta={"kind": "ioi", "indirect_object": indirect, "subject": subject},
        judge=judge(shots, labels=(indirect, subject)),
        corrupt=before + indirect + after,
        choices=(indirect, subject),
        group=f"ioi {' '.join(sorted((indirect, subject)))}",
    )
