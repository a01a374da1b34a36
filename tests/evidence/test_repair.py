"""Repair: moved attention equals a plain loop over full forwards; bad positions and trials are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.heads.conditions import Condition
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import hooked

BOTH = lh.Controls(("random", "random_like"), 2)
HEADS = ["L0H1", "L1H2", "L2H0"]


def trial(seed: int = 0, n: int = 40) -> lh.EncodedTrial:
    """A random prompt with three choices of two tokens, of which the second is in it twice."""
    ids = 5 + torch.randperm(80, generator=torch.Generator().manual_seed(seed))[: n + 6]
    prompt, choices = ids[:n].clone(), [ids[n + 2 * i : n + 2 * i + 2] for i in range(3)]
    for at, choice in ((4, 0), (9, 1), (30, 1), (20, 2)):
        prompt[at : at + 2] = choices[choice]
    names = ("a", "b", "c")
    return lh.EncodedTrial(prompt, None, "a", choices[0], f"random-{seed}", choices=names, choice_tokens=tuple(choices))


def plain(model: Any, one: lh.EncodedTrial, heads: list[str], aim: list[int]) -> tuple[float, float]:
    """One full forward, rows and heads one by one."""
    tokens = torch.cat([one.tokens, one.answer_tokens[:-1]])
    by_layer: dict[int, list[int]] = {}
    for head in map(lh.Head.parse, heads):
        by_layer.setdefault(head.layer, []).append(head.head)

    def moved(layer: int) -> Any:
        def hook(x: torch.Tensor, hook: Any) -> torch.Tensor:
            x, window = x.clone(), head_geometry(model).windows[layer]
            for row in range(len(one) - 1, len(tokens)):
                inside = [at for at in aim if window is None or at > row - window]
                for index in by_layer[layer]:
                    if inside:
                        x[0, index, row] = 0
                        x[0, index, row, inside] = 1 / len(inside)
            return x

        return hook

    with torch.no_grad(), hooked(model, [(f"blocks.{layer}.attn.hook_pattern", moved(layer)) for layer in by_layer]):
        logits = model(tokens[None])[0, len(one) - 1 :].float()
    gold = one.answer_tokens
    logprob = float(logits.log_softmax(-1).gather(-1, gold[:, None]).mean())
    return logprob, float((logits.argmax(-1) == gold).all())


@pytest.mark.parametrize(("towards", "aim"), [("others", [9, 10, 20, 21, 30, 31]), ("answer", [4, 5])])
def test_equals_a_plain_loop(arch: str, model: Any, towards: Any, aim: list[int]) -> None:
    one = trial()
    found = lh.evidence.repair(
        model,
        one,
        HEADS,
        towards=towards,
        controls=BOTH,
        sets_per_pass=3,
        progress=False,
    )
    for condition, draw in [(Condition.top("moved", 3), 0), *((Condition.random(3), seed) for seed in range(2))]:
        expected = plain(model, one, found.heads(condition, draw=draw).split(","), aim)
        values = [found.draws(condition, metric)[draw].item() for metric in ("logprob", "greedy_match")]
        assert values == pytest.approx(expected, abs=1e-4)
    assert found.values(Condition.none(), "logprob").item() == pytest.approx(plain(model, one, [], aim)[0], abs=1e-4)


def test_random_heads_of_the_same_layers_are_as_many_in_each(gqa: Any) -> None:
    found = lh.evidence.repair(gqa, trial(), HEADS, controls=lh.Controls(("random", "random_like"), 5), progress=False)
    for draw in range(5):
        drawn = [lh.Head.parse(head) for head in found.heads(Condition.random_like("moved", 3), draw=draw).split(",")]
        assert sorted(head.layer for head in drawn) == [0, 1, 2]


def test_an_own_function_says_where_attention_goes(gqa: Any) -> None:
    found = lh.evidence.repair(gqa, trial(), HEADS, towards=lambda one: [3], controls=(), progress=False)
    expected = plain(gqa, trial(), HEADS, [3])
    assert found.values(Condition.top("moved", 3), "logprob").item() == pytest.approx(expected[0], abs=1e-4)


def test_continues_from_its_folder_and_refuses_another_aim(gqa: Any, tmp_path: Path) -> None:
    trials = [trial(seed) for seed in range(2)]
    one, again = (lh.evidence.repair(gqa, trials, HEADS, controls=BOTH, out=tmp_path, progress=False) for _ in range(2))
    assert one.frame.equals(again.frame)
    with pytest.raises(ValueError, match="towards"):
        lh.evidence.repair(
            gqa,
            trials,
            HEADS,
            towards="answer",
            controls=BOTH,
            out=tmp_path,
            progress=False,
        )


def test_errors_name_what_is_wrong(gqa: Any) -> None:
    with pytest.raises(TypeError, match="repair: unexpected keyword argument 'batch_size'"):
        lh.evidence.repair(gqa, [], ["L0H0"], batch_size=4)  # type: ignore[call-arg]

    def refused(match: str, heads: Any = HEADS, one: Any = None, towards: Any = "others", controls: Any = ()) -> None:
        with pytest.raises(ValueError, match=match):
            lh.evidence.repair(
                gqa,
                one or trial(),
                heads,
                towards=towards,
                controls=controls,
                progress=False,
            )

    bare = lh.EncodedTrial(trial().tokens, None, "a", trial().answer_tokens, "bare")
    other = lh.EncodedTrial(
        trial().tokens,
        None,
        "a",
        trial().answer_tokens,
        "other",
        choices=("a", "d"),
        choice_tokens=(trial().answer_tokens, [11, 12]),
    )
    refused("no heads", heads=[])
    refused("L9H9", heads=["L9H9"])
    refused("trial bare has no choices besides its answer", one=bare)
    refused("trial other: its prompt has no 'd'", one=other)
    refused("towards='elsewhere'", towards="elsewhere")
    refused(r"towards\(random-0\)=40", towards=lambda one: [40])
    refused(r"towards\(random-0\) returned \[\]", towards=lambda one: [])
    refused("unknown control 'bottom': here they are random, random_like", controls="bottom")
