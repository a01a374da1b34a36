"""IOI: indirect object identification, whose circuit in GPT-2 is known   (Wang et al., ICLR 2023, arXiv 2211.00593)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, permutations, product

from lens_heads.tasks.packaged import entries
from lens_heads.tasks.rows import enough
from lens_heads.tasks.templates import judge, template
from lens_heads.trials.trial import Trial


def ioi(
    n: int = 100,
    split: str = "select",
    seed: int = 0,
    symmetric: bool = False,
    names: Sequence[str] | None = None,
    templates: Sequence[str] | None = None,
    nouns: Mapping[str, Sequence[str]] | None = None,
    chat: bool | None = False,
) -> list[Trial]:
    """Sentences of two people that end where the indirect object goes, such as "Then, Sarah and Peter went to the store.
    Sarah gave the milk to", with the templates and nouns of `transformer_lens.evals.IOIDataset`.

    Args:
        n: trials; no two have the same prompt.
        split: whose names, "select" to find heads, "test" to evaluate them: the 14 of each half of the packaged needles,
            none in both.
        seed: of the draw.
        symmetric: every sentence also with the two names exchanged, right after it; `n` is even.
        names: others than those of `split`; `IOIDataset`'s own are "John" and "Mary".
        templates: others than `IOIDataset`'s two, in its form: "[B]" is the subject, "[A]" the indirect object, the last
            word; nouns are such as "[OBJECT]".
        nouns: what the nouns of the templates can be, by name.
        chat: as in `Trial`. False by default, for chat models too: the sentence is a text to go on with.

    Returns:
        Trials without needle, with ids such as "ioi-select-Peter-Sarah-0"; the choices are the indirect object, which is the
        answer, and the subject. `meta` holds the kind, both, and "corrupt": the prompt whose last subject is the other name,
        so that the answer is too (for `TokenPair`, where both names have as many tokens).

    Raises:
        ValueError: an unknown split, fewer than two names, a template without its places, an odd number of symmetric
            trials, more trials than there are prompts.

    Differs from `IOIDataset`: no prompt is drawn twice, and there are more names. `ioi_eval` sets the names' first different
    tokens against each other; choices are compared by all their tokens.
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
    enough(n, each * len(frames) * len(pairs), "different prompts of these names, templates and nouns")
    if n % each:
        raise ValueError(f"n={n}: symmetric sentences come in twos: ask for an even number")
    drawn = random.Random(seed).sample(range(len(frames) * len(pairs)), n // each)
    chosen = [(frames[at % len(frames)], pairs[at // len(frames)]) for at in drawn]
    cast = [(frame, people) for frame, (a, b) in chosen for people in ((a, b), (b, a))[:each]]
    return [
        _trial(frame, *people, f"{source}-{'-'.join(people)}-{at}", chat) for at, (frame, people) in enumerate(cast)
    ]


def _several(given: Sequence[str], what: str, least: int) -> list[str]:
    """The different texts of a list; ValueError when there are too few."""
    found = list(dict.fromkeys([given] if isinstance(given, str) else given))
    if len(found) < least or not all(isinstance(text, str) and text.strip() for text in found):
        raise ValueError(f"{what}={given!r}: give a list of {least} or more different texts")
    return found


def _frames(text: str, nouns: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """A template with its nouns filled in, in every way; ValueError for one that is not of two people."""
    if text.count("[A]") < 2 or text.count("[B]") < 2 or not text.endswith(" [A]"):
        raise ValueError(
            f"the template {text!r} is not of two people: name the subject '[B]' twice, and the indirect object '[A]' "
            "before and as the last word"
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
        meta={
            "kind": "ioi",
            "indirect_object": indirect,
            "subject": subject,
            "corrupt": before + indirect + after,
        },
        judge=judge(shots, labels=(indirect, subject)),
        choices=(indirect, subject),
    )
