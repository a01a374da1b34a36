"""Trials as they are given: what is accepted, and what is refused with a remedy. Composition is in test_compose.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.judges import judge_of
from lens_heads.trials.trial import Trial
from tests import zoo
from tests.conftest import random_trial, tiny
from tests.sandboxed import needs_confinement


def encoded(**changes: Any) -> EncodedTrial:
    return EncodedTrial(
        **{"tokens": [5, 6, 7], "needle": (0, 1), "answer": "x", "answer_tokens": [5], "id": "t", **changes}
    )


@pytest.mark.parametrize("name", [3, None, ("a", 1)])
def test_an_id_is_a_string(name: Any) -> None:
    remedy = f"must be a string, e.g. {str(name)!r}"
    for make in (lambda: encoded(id=name), lambda: Trial(name, "q", "a")):
        with pytest.raises(ValueError) as error:  # noqa: PT011 - matched below, the name holds special characters
            make()
        assert remedy in str(error.value)


@pytest.mark.parametrize("needle", [(0.0, 2.0), (0, 1, 2), 3, "ab", (None, 1), (0,)])
def test_a_needle_is_a_pair_of_ints(needle: Any) -> None:
    with pytest.raises(ValueError, match=r"trial t: the needle .* must be a pair of ints \(start, end\), or None"):
        encoded(needle=needle)


def test_a_needle_of_any_integers_is_one_of_ints() -> None:
    for needle in ([1, 3], torch.tensor([1, 3])):
        assert encoded(needle=needle).needle == (1, 3)


def test_encoded_trials_are_equal_to_themselves_alone_and_hash() -> None:
    one, other = encoded(), encoded()
    assert one == one
    assert one != other
    assert len({one, other}) == 2


def test_a_single_trial_is_one() -> None:
    one, text = random_trial(), Trial("t", "What?", "red")
    (same,) = encode_all(one, zoo.tokenizer(), 512)
    assert {**vars(same), "place": one.place} == vars(one)  # A copy that knows its place.
    (made,) = encode_all(text, zoo.tokenizer(), 512)
    assert made.id == "t"


@pytest.mark.parametrize("given", ["some text", 3, None])
def test_what_holds_no_trials_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match=rf"a list of Trials, got {type(given).__name__}: pass lens_heads\.Trial\(id="):
        encode_all(given, zoo.tokenizer(), 512)


@pytest.mark.parametrize("given", [["some text"], {"a": 1}, [random_trial(), 3]])
def test_what_is_no_trial_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match=r"expected Trial or EncodedTrial, got (str|int): pass lens_heads\.Trial\(id="):
        encode_all(given, zoo.tokenizer(), 512)


def test_a_used_generator_is_hinted_at() -> None:
    trials = (random_trial(seed) for seed in range(2))
    assert len(encode_all(trials, zoo.tokenizer(), 512)) == 2
    with pytest.raises(ValueError, match=r"there are no trials: pass at least one, .*generator is empty after one use"):
        encode_all(trials, zoo.tokenizer(), 512)


def test_token_ids_lie_in_the_vocabulary() -> None:
    def check(d_vocab: int | None = None, **changes: Any) -> None:
        encode_all([encoded(**changes)], zoo.tokenizer(), 512, d_vocab=d_vocab)

    check(d_vocab=8)
    check(tokens=[10**6, 1, 2])
    for d_vocab, known in ((None, "ids start at 0"), (8, "the model's ids are 0 to 7")):
        with pytest.raises(
            ValueError, match=f"trial t: tokens contain the id -1, but {known}: encode with this model's"
        ):
            check(d_vocab, tokens=[1, -1, 2])
    with pytest.raises(ValueError, match="trial t: tokens contain the id 7, but the model's ids are 0 to 6"):
        check(7)
    with pytest.raises(ValueError, match="trial t: answer_tokens contain the id 9, but the model's ids are 0 to 7"):
        check(8, answer_tokens=[1, 9])


@needs_confinement
def test_text_that_would_be_run_as_code_is_refused_where_it_would_be_judged() -> None:
    judge = judge_of(rule="passes_tests", tests="assert True")
    trial = Trial(id="mine", question="1 + 1 =", answer="2", template="{question}", judge=judge)
    with pytest.raises(ValueError, match=r"trial mine: judging it runs generated code: .*allow_code_execution=True"):
        encode_all([trial], zoo.tokenizer(), 512, room=4)
    allowed = replace(trial, judge=replace(judge, allowed=True))
    for given, options in ((trial, {}), (trial, {"room": 4, "judged": False}), (allowed, {"room": 4})):
        assert len(encode_all([given], zoo.tokenizer(), 512, **options)) == 1


def test_trials_that_share_a_needle_or_a_prompt_are_one_group() -> None:
    tokenizer = zoo.tokenizer()
    hays = ("Rain fell. Snow lay.", "A cat slept. It was late.", "Nobody came. We left.")
    trials = [lh.Trial(f"t{i}", "Where is Tom?", "Oslo", hay, "Tom is in Oslo.", depth=1) for i, hay in enumerate(hays)]
    other = lh.Trial("o", "Where is Ann?", "Rome", hays[0], "Ann is in Rome.")
    groups = [one.group for one in encode_all([*trials, other], tokenizer, 512)]
    assert groups[0] == groups[1] == groups[2]
    assert str(groups[0]).startswith("needle ")
    assert groups[3] == ""
    own = [replace(trials[0], group="own"), *trials[1:]]
    assert encode_all(own, tokenizer, 512)[0].group == "own"
    bare = [lh.Trial(name, "2 + 2 =", "4", template="{question}") for name in "ab"]
    with pytest.warns(UserWarning, match="trials a, b have the same prompt and are no independent trials"):
        one, two = encode_all(bare, tokenizer, 512)
    assert one.group == two.group != ""
    assert bare[0].group == "", "the user's own trial stays as it is"


def test_the_same_text_twice_counts_once() -> None:
    probe = lh.plain_texts(["It rained all day.", "Nobody went out.", "It rained all day."])
    with pytest.warns(UserWarning, match="text-0 and text-2 are the same, so that they count as one in intervals"):
        found = lh.score_heads(tiny("gpt2"), probe, "entropy", progress=False)["entropy"]
    assert len(set(found.groups[0])) == 2
    assert found.groups[0][1] == ""
