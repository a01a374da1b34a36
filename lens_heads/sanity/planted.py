"""A positive control: a small transformer whose heads are known by construction, and how well a ranking finds them.

Every prompt hides `(b=B)`: a clue, a sign, and the answer, the clue's capital, before a few letters that tell needles of other
seeds apart. It ends in `?`, which asks for any answer, or, where a second needle stands in the prompt, in a digit, which asks for
one of them; no other token has a query. The residual stream holds which token stands here, which token comes
next (all that the unembedding reads), and notes that heads leave for others. MLPs are zero, and queries and keys use a rotation
that hardly turns, so attention depends on tokens alone.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict, Unpack

import pandas as pd
import torch

from lens_heads.heads.head import AnyHeads, Head
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.sets import every_head
from lens_heads.model.beginning import begin_as_own
from lens_heads.model.geometry import Model, head_geometry
from lens_heads.runs import checks
from lens_heads.runs.digests import digest
from lens_heads.runs.drawn import Tabled
from lens_heads.runs.typed import Default, defaults_of, typed, typed_methods
from lens_heads.sanity.planted_weights import ANSWERS, CLUES, FILLER, QUESTIONS, byte_tokenizer, write_weights
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.tokenizing import vocabulary

Role = Literal["copier", "selector", "writer", "suppressor", "decoy", "main", "backup", "feeder", "reader", "noise"]
EFFECTS: dict[str, str] = {
    "copier": "direct",
    "selector": "direct",
    "writer": "direct",
    "suppressor": "direct",
    "main": "redundant",
    "backup": "redundant",
    "reader": "direct",
    "feeder": "indirect",
    "decoy": "none",
    "noise": "none",
}
"""How a head of each role matters: it writes the answer; only another head reads it; another stands in for it; not at all."""

LARGEST_SIDE = 128
"""Layers, and heads in each: a control is to be small, and a slip would take all memory."""


TAG = 4
"""Letters of filler that end a needle."""


def _tag(seed: int, i: int) -> str:
    """The letters of one trial's needle. No head looks at them."""
    number = int(digest(["needle", seed, i]), 16)
    return "".join(FILLER[number // len(FILLER) ** place % len(FILLER)] for place in range(TAG))


@typed_methods
@dataclass(frozen=True, eq=False)
class Planted(Tabled):
    """A model with its ground truth.

    `roles`: every head's part. "copier" looks at every answer of the prompt and writes it, whatever was asked; "selector" looks
    only at the one that was asked for, and writes it; "writer" looks at the clue and writes the answer,
    which copy scores miss; "suppressor" writes minus half of it; "decoy" looks at the answer and writes nothing; "backup" writes
    only where its "main" head is gone; "reader" looks at the answer only where its "feeder" has left a note; "noise" attends
    evenly and writes a little at random. `ids`: the token of each letter and sign of its prompts.

    `seed`: of the weights. `meta`: how it was made.

    Example:
        >>> planted.of("copier"), planted.of("writer")
        ([Head(1, 0)], [Head(0, 0)])
    """

    model: Model
    roles: dict[Head, Role]
    ids: dict[str, int] = field(repr=False)
    seed: int = 0
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def frame(self) -> pd.DataFrame:
        """A row per head: head, role, effect ("direct", "indirect", "redundant", "none")."""
        return pd.DataFrame(
            [{"head": str(head), "role": role, "effect": EFFECTS[role]} for head, role in self.roles.items()]
        )

    def __repr__(self) -> str:
        counts = Counter(self.roles.values())
        told = ", ".join(f"{n} {role}" for role, n in counts.items())
        return f"Planted({self.model.cfg.n_layers} layers x {self.model.cfg.n_heads} heads: {told})"

    def of(self, *roles: str) -> list[Head]:
        """The heads of these roles. ValueError for one that does not exist."""
        unknown = next((role for role in roles if role not in EFFECTS), None)
        if unknown is not None:
            raise ValueError(f"unknown role {unknown!r}: the roles are {', '.join(EFFECTS)}")
        return [head for head, role in self.roles.items() if role in roles]

    @property
    def matters(self) -> list[Head]:
        """The heads whose ablation alone changes the answer: those that write it or feed one that does, without stand-ins."""
        return [head for head, role in self.roles.items() if EFFECTS[role] in ("direct", "indirect")]

    def trials(
        self,
        n: int = 16,
        *,
        length: int = 40,
        seed: int = 0,
        corrupt: bool = False,
        distractors: int = 0,
    ) -> list[EncodedTrial]:
        """Trials of `length` tokens with their needle in random places; `corrupt`: filler in place of the needle.

        `distractors=1`: a second needle with another answer, and a question that asks for one of the two, the trial's `choices`;
        the trial's `corrupt` asks for the other.
        No needle stands in two trials, nor in trials of two seeds, so that one seed may choose heads and another judge them.
        """
        if checks.whole_number("distractors", distractors, 0, 1):
            return self._choosing(n, length, seed, corrupt)
        checks.count("n", n)
        checks.whole_number("length", length, 8 + TAG, self.model.cfg.n_ctx - 1)
        generator, filler = (
            torch.Generator().manual_seed(checks.seed(seed)),
            torch.tensor([self.ids[c] for c in FILLER]),
        )
        made = []
        for i in range(n):
            clue, answer = CLUES[i % len(CLUES)], ANSWERS[i % len(ANSWERS)]
            tokens = filler[torch.randint(len(filler), (length,), generator=generator)]
            tokens[0], tokens[-1] = self.model.tokenizer.bos_token_id, self.ids["?"]
            start = int(torch.randint(1, length - TAG - 6, (1,), generator=generator))
            needle = f"({clue}={answer}){_tag(seed, i)}"
            span = start, start + len(needle)
            if not corrupt:
                tokens[slice(*span)] = torch.tensor([self.ids[c] for c in needle])
            gold = torch.tensor([self.ids[answer]])
            name = f"planted-{seed}-{i}"
            made.append(EncodedTrial(tokens, span, answer, gold, name, vocabulary=vocabulary(self.model.tokenizer)))
        return made

    def _choosing(self, n: int, length: int, seed: int, corrupt: bool) -> list[EncodedTrial]:
        """Trials with two needles."""
        checks.count("n", n)
        checks.whole_number("length", length, 2 * (8 + TAG), self.model.cfg.n_ctx - 1)
        generator = torch.Generator().manual_seed(checks.seed(seed))
        filler, size, made = torch.tensor([self.ids[c] for c in FILLER]), 5 + TAG, []
        for i in range(n):
            first = i % len(CLUES)
            both = [first, (first + 1 + i // len(CLUES) % (len(CLUES) - 1)) % len(CLUES)]
            tokens = filler[torch.randint(len(filler), (length,), generator=generator)]
            half = (length - 2) // 2
            starts = [1 + side * half + int(torch.randint(half - size, (1,), generator=generator)) for side in (0, 1)]
            starts = starts if torch.rand(1, generator=generator) < 0.5 else starts[::-1]
            tokens[0] = self.model.tokenizer.bos_token_id
            for at, start, number in zip(both, starts, (i, i + n), strict=True):
                if not corrupt:
                    needle = f"({CLUES[at]}={ANSWERS[at]}){_tag(seed, number)}"
                    tokens[start : start + size] = torch.tensor([self.ids[c] for c in needle])
            (right, wrong), (mine, other) = both, starts
            tokens[-1] = self.ids[QUESTIONS[right]]
            asked_other = tokens.clone()
            asked_other[-1] = self.ids[QUESTIONS[wrong]]
            gold, rival = (torch.tensor([self.ids[ANSWERS[at]]]) for at in (right, wrong))
            choices = sorted([(ANSWERS[right], gold), (ANSWERS[wrong], rival)], key=lambda one: one[0])
            made.append(
                EncodedTrial(
                    tokens,
                    (mine, mine + size),
                    ANSWERS[right],
                    gold,
                    f"planted-{seed}-{i}",
                    choices=tuple(answer for answer, _ in choices),
                    choice_tokens=tuple(ids for _, ids in choices),
                    corrupt=asked_other,
                    wrong=rival,
                    distractors=((other, other + size),),
                    vocabulary=vocabulary(self.model.tokenizer),
                )
            )
        return made

    def quality(self, scores: HeadScores, *, truth: AnyHeads | None = None) -> dict[str, float]:
        """How well a ranking finds the heads that matter, or those of `truth`: AUROC, average precision, precision at k.

        `truth`: heads, or their names. k is the number of such heads. A random ranking gets 0.5, and about their share of all
        heads in the others. ValueError for scores of another shape, and for a truth of no heads or all.
        """
        from sklearn.metrics import average_precision_score, roc_auc_score

        shape = head_geometry(self.model)
        wanted = set(self.matters if truth is None else shape.check_heads(truth))
        heads = list(self.roles)
        if (scores.n_layers, scores.n_heads) != (self.model.cfg.n_layers, self.model.cfg.n_heads):
            raise ValueError(f"scores of {scores.n_layers} layers x {scores.n_heads} heads are not of this model")
        if not 0 < len(wanted) < len(heads):
            raise ValueError(f"the truth has {len(wanted)} of {len(heads)} heads: there is nothing to tell apart")
        label = [head in wanted for head in heads]
        place = {head: rank for rank, head in enumerate(scores.ranking())}
        value = [-place[head] for head in heads]
        found = sum(head in wanted for head in scores.ranking()[: len(wanted)]) / len(wanted)
        return {
            "auroc": float(roc_auc_score(label, value)),
            "average_precision": float(average_precision_score(label, value)),
            "precision": found,
        }


_ALONE: tuple[Role, ...] = ("copier", "selector", "writer", "suppressor", "decoy")
"""Roles that need no second head."""


class PlantedOptions(TypedDict, total=False):
    """What is planted.

    layers, heads, kv_heads: the model's size; fewer kv heads than heads for grouped queries. A kv group holds one planted head.
    copiers, selectors, writers, suppressors, decoys: how many of each.
    backups: pairs of a main head and, in a later layer, its backup.
    chains: pairs of a feeder and, in a later layer, its reader.
    post_norm: OLMo 2's blocks, which normalise what attention writes, and queries and keys; else Llama's. Heads of one layer
        are then normalised together, so every planted head has a layer of its own.
    window: a sliding window of all layers, which has to reach from the `?` to the needle to see it.
    """

    layers: Annotated[int, Default(4)]
    heads: Annotated[int, Default(4)]
    kv_heads: int | None
    copiers: Annotated[int, Default(1)]
    selectors: Annotated[int, Default(0)]
    writers: Annotated[int, Default(1)]
    suppressors: Annotated[int, Default(1)]
    decoys: Annotated[int, Default(1)]
    backups: Annotated[int, Default(1)]
    chains: Annotated[int, Default(1)]
    post_norm: Annotated[bool, Default(False)]
    window: int | None


@typed
def planted_model(*, seed: int = 0, **options: Unpack[PlantedOptions]) -> Planted:
    """A transformer with planted heads in random places; every other head is noise.

    Args:
        seed: of the places and the noise.
        **options: what is planted, and in how large a model; see `PlantedOptions`.

    ValueError for numbers that do not fit: planted heads need a kv group each (or a layer), pairs two layers.

    Example:
        >>> planted = lh.planted_model(writers=2)
        >>> planted.of("writer")
        [Head(2, 0), Head(3, 1)]
    """
    parts = {**defaults_of(PlantedOptions), **options}
    layers, heads, post_norm, window = (parts[name] for name in ("layers", "heads", "post_norm", "window"))
    kv_heads = heads if parts["kv_heads"] is None else parts["kv_heads"]
    for name, value in {"layers": layers, "heads": heads, "kv_heads": kv_heads}.items():
        checks.whole_number(name, value, 1, LARGEST_SIDE if checks.whole(value) is not None else checks.LARGEST)
    if window is not None:
        checks.whole_number("window", window, remedy=", or None")
    if heads % kv_heads:
        raise ValueError(f"heads={heads} is no multiple of kv_heads={kv_heads}")
    wanted: dict[Role, int] = {role: parts[f"{role}s"] for role in _ALONE}
    for name in (*_ALONE, "backup", "chain"):
        checks.whole_number(f"{name}s", parts[f"{name}s"], 0)
    generator = torch.Generator().manual_seed(checks.seed(seed))
    free = [(layer, kv) for layer in range(layers) for kv in range(kv_heads)]
    free = [free[i] for i in torch.randperm(len(free), generator=generator).tolist()]
    if post_norm:
        free = list({layer: (layer, kv) for layer, kv in free}.values())
    roles: dict[Head, Role] = dict.fromkeys(every_head(layers, heads), "noise")
    paired: dict[tuple[Role, Role], int] = {("main", "backup"): parts["backups"], ("feeder", "reader"): parts["chains"]}
    pairs = _place(roles, free, heads // kv_heads, wanted, paired)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = byte_tokenizer(folder)
        hf, ids = write_weights(roles, pairs, (layers, heads, kv_heads), post_norm, window, tokenizer, seed)
        model = _bridge(hf, tokenizer, seed)
    return Planted(model, roles, ids, seed, {"post_norm": post_norm, "window": window})


def _place(
    roles: dict[Head, Role],
    free: list[tuple[int, int]],
    group: int,
    wanted: dict[Role, int],
    paired: dict[tuple[Role, Role], int],
) -> list[tuple[Head, Head]]:
    """Give heads their roles, and return the pairs whose first head leaves a note for the second.

    `free`: places (layer, kv head) in random order, of which each takes one planted head.
    """
    needed = sum(wanted.values()) + 2 * sum(paired.values())
    if needed > len(free):
        raise ValueError(f"{needed} planted heads need a place each, but the model has {len(free)}: make it larger")
    places, pairs = list(free), []

    def put(role: Role, place: tuple[int, int]) -> Head:
        places.remove(place)
        head = Head(place[0], place[1] * group + len(places) % group)
        roles[head] = role
        return head

    for (first, second), number in paired.items():
        for _ in range(number):
            one = places[0]
            other = next((place for place in places if place[0] != one[0]), None)
            if other is None:
                raise ValueError(
                    f"{first} and {second} need two layers, but only layer {one[0]} has places left: use more"
                )
            lower, upper = sorted((one, other))
            pairs.append((put(first, lower), put(second, upper)))
    for role, number in wanted.items():
        for _ in range(number):
            put(role, places[0])
    return pairs


def _bridge(hf: Any, tokenizer: Any, seed: int) -> Model:
    from transformer_lens.model_bridge import TransformerBridge

    model = TransformerBridge.boot_transformers(
        f"planted-{seed}", hf_model=hf, tokenizer=tokenizer, device="cpu", dtype=torch.float32
    )
    model.enable_compatibility_mode(no_processing=True, disable_warnings=True)
    begin_as_own(model, prepend_bos=True)  # As planted prompts begin.
    return model.eval()
