"""Passkeys: several random word sequences hidden in prose, all asked for at the end. What DuoAttention's gates are trained on."""

from __future__ import annotations

import random

import torch

from lens_heads.model.geometry import Model
from lens_heads.runs import checks
from lens_heads.runs.typed import typed
from lens_heads.tasks import prose
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.tokenizing import piece, prompt_start, vocabulary

WORDS = [
    "alpha",
    "bravo",
    "charlie",
    "delta",
    "echo",
    "foxtrot",
    "golf",
    "hotel",
    "india",
    "juliett",
    "kilo",
    "lima",
    "mike",
    "november",
    "oscar",
    "papa",
    "quebec",
    "romeo",
    "sierra",
    "tango",
    "uniform",
    "victor",
    "whiskey",
    "xray",
    "yankee",
    "zulu",
]
ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
NEEDLE = "\n\nRemember this sequence of words, it is the {} passkey to the vault: {}\n\n"
QUESTION = "Based on the content of the book, what is the {} passkey to the vault?\nPasskey: {}\n\n"
BEFORE, AFTER = "This is a very long story book: <book> ", " </book>.\n\n"


@typed
def passkeys(
    model: Model,
    *,
    n: int = 50,
    lengths: tuple[int, int] = (500, 1000),
    keys: int = 4,
    words: int = 8,
    seed: int = 0,
) -> list[EncodedTrial]:
    """Trials of `keys` passkeys of so many `words`, at random places in packaged prose; the answer asks for all in turn.

    Args:
        n: trials. Their whole lengths, answer included, are spread evenly over `lengths`, in tokens.
        keys: at most 10. words: in a passkey. The authors hide 10 of 32 words in 1,000 to 32,000 tokens of a book.

    The answer's tokens are questions and passkeys, all of which count in the authors' loss. ValueError for lengths that leave no
    room for prose, and for more tokens than the context window has.

    `model`: whose tokens they are. `seed`: of places, words and prose.

    Example:
        >>> trial = lh.ranking.passkeys(model, n=1, lengths=(500, 510), keys=2, words=1)[0]
        >>> len(trial.tokens) < 510
        True
    """
    checks.count("n", n)
    checks.whole_number("keys", keys, 1, len(ORDINALS))
    checks.count("words", words)
    short, long = (checks.count("lengths", each) for each in lengths)
    rng, tokenizer = random.Random(f"passkeys-{checks.seed(seed)}"), model.tokenizer
    book = piece(tokenizer, prose.haystack(words=max(1000, 2 * long), seed=seed))
    frame = prompt_start(tokenizer, BEFORE), piece(tokenizer, AFTER)
    found = []
    for i in range(n):
        length = short + (long - short) * i // max(1, n - 1)
        drawn = [" ".join(rng.choices(WORDS, k=words)) for _ in range(keys)]
        needles, questions = ([piece(tokenizer, each) for each in _filled(form, drawn)] for form in (NEEDLE, QUESTION))
        room = length - sum(map(len, (*needles, *questions, *frame)))
        if room < keys:
            raise ValueError(
                f"lengths={lengths!r}: {length} tokens leave no room for prose around {keys} passkeys of {words} words: "
                "use longer trials, or fewer or shorter passkeys"
            )
        start, places = rng.randrange(len(book) - room), sorted(rng.sample(range(room), keys))
        prompt = list(frame[0])
        for place, end, needle in zip([0, *places], [*places, room], [*needles, frame[1]], strict=True):
            prompt += [*book[start + place : start + end], *needle]
        answer = torch.tensor([token for question in questions for token in question])
        id = f"passkeys-{seed}-{i}"
        written, known = ", ".join(drawn), vocabulary(tokenizer)
        found.append(EncodedTrial(torch.tensor(prompt), None, written, answer, id=id, vocabulary=known))
    return found


def _filled(form: str, drawn: list[str]) -> list[str]:
    return [form.format(*pair) for pair in zip(ORDINALS, drawn, strict=False)]
