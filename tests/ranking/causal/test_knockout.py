"""Knockout scores: each equals full forwards in a plain loop, and planted heads stand out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.heads.sets import every_head
from lens_heads.model.hooks import has_hooks
from lens_heads.ranking.causal import knockout
from lens_heads.ranking.causal.knockout import angle, main_direction
from tests import planted
from tests.conftest import random_trial, tiny


def full_forward(
    model: Any, tokens: torch.Tensor, heads: Any, kind: str, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and final state of the last row, from one forward over the whole prompt."""
    seen: list[torch.Tensor] = []
    with torch.no_grad(), lh.ablate(model, heads, kind=kind, **options):
        name = "blocks.2.hook_resid_post"
        logits = model.run_with_hooks(tokens[None], fwd_hooks=[(name, lambda x, hook: seen.append(x))])
        return logits[0, -1], model.ln_final(seen[0])[0, -1]


@pytest.mark.slow
def test_ships_matches_full_forwards(arch: str, model: Any) -> None:
    tokens = random_trial().tokens
    found = lh.knockout_heads(model, [tokens], progress=False, kind="uniform")
    p = full_forward(model, tokens, [], "zero")[0].double().softmax(-1)
    for head in ("L0H0", "L1H2", "L2H1"):
        q = full_forward(model, tokens, head, "uniform")[0].double().softmax(-1)
        expected = sum(float(a * torch.log(a / b)) for a, b in zip(p, q, strict=True))
        assert found[head] == pytest.approx(expected, abs=2e-5, rel=2e-3)
    assert float(found.values.min()) > -1e-6
    assert found.trial_ids == ("text-0",)
    assert not has_hooks(model)


def test_any_operator_and_measure(gqa: Any) -> None:
    trials = [random_trial(seed) for seed in range(2)]

    def loss_of_top(intact: torch.Tensor, ablated: torch.Tensor) -> torch.Tensor:
        return intact.max() - ablated[intact.argmax()]

    found = lh.knockout_heads(gqa, trials, kind="scale", measure=loss_of_top, factor=0.5, progress=False)
    assert found.trial_ids == ("random-0", "random-1")
    for i, trial in enumerate(trials):
        intact = full_forward(gqa, trial.tokens, [], "zero")[0]
        ablated = full_forward(gqa, trial.tokens, "L1H1", "scale", factor=0.5)[0]
        assert float(found.per_trial[i, 1, 1]) == pytest.approx(float(loss_of_top(intact, ablated)), abs=1e-4)


def test_planted_heads_are_found_and_silent_ones_score_nothing() -> None:
    model, trials = planted.model(), planted.trials(4)
    found = lh.knockout_heads(model, trials, progress=False, kind="uniform")
    assert set(found.top(3)) == {planted.COPIER, planted.WRITER, planted.SUPPRESSOR}
    assert abs(found[planted.DECOY]) < 1e-6
    even = next(head for head in every_head(2, 4) if head not in planted.STRENGTH)
    assert abs(found[even]) < 1e-6, "it attends evenly already"


@pytest.mark.slow
def test_sahara_matches_full_forwards(gqa: Any) -> None:
    prompts = [random_trial(seed).tokens for seed in range(4)]
    found = lh.ranking.sahara(gqa, prompts, k=2, progress=False, kind="uniform")

    def turned(heads: Any) -> float:
        states = [
            torch.stack([full_forward(gqa, tokens, each, "uniform")[1] for tokens in prompts]) for each in ([], heads)
        ]
        u, v = (torch.linalg.svd(rows.double())[0][:, 0] for rows in states)
        return float(torch.rad2deg(torch.arccos(abs(float(u @ v)) * torch.ones(()).double())))

    alone = {head: turned([head]) for head in every_head(3, 4)}
    first = max(alone, key=alone.__getitem__)
    assert found.order[0] == found.top(1)[0] == first
    for head, value in alone.items():
        assert found[head] == pytest.approx(value, abs=0.05)
    second = {head: turned([first, head]) for head in alone if head != first}
    assert found.order[1] == max(second, key=second.__getitem__)
    assert found.meta["angles"] == pytest.approx([alone[first], max(second.values())], abs=0.05)
    assert found.selected


def test_sahara_says_which_set_of_heads_failed(gqa: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = knockout.last_rows

    def failing(model: Any, one: Any, sets: Any, *rest: Any) -> Any:
        if any("L1H2" in map(str, heads) for heads in sets):
            raise torch.OutOfMemoryError("out of memory")
        return whole(model, one, sets, *rest)

    monkeypatch.setattr(knockout, "last_rows", failing)
    prompts = [random_trial(seed).tokens for seed in range(2)]
    with (
        pytest.warns(UserWarning, match="out of memory"),
        pytest.raises(ValueError, match="sahara: without L1H2 the model failed"),
    ):
        lh.ranking.sahara(gqa, prompts, k=1, progress=False, kind="uniform")


def test_the_angle_does_not_change_under_a_rotation_of_the_states() -> None:
    generator = torch.Generator().manual_seed(0)
    one, other = (torch.randn(5, 8, generator=generator) for _ in range(2))
    turn = torch.linalg.qr(torch.randn(8, 8, generator=generator)).Q
    before = angle(main_direction(one), main_direction(other))
    assert float(angle(main_direction(one @ turn), main_direction(other @ turn))) == pytest.approx(
        float(before), abs=1e-3
    )
    assert float(angle(main_direction(one), main_direction(one @ turn))) == pytest.approx(0, abs=1e-2)


def test_a_run_continues_from_its_folder(gqa: Any, tmp_path: Any) -> None:
    prompts = [random_trial(seed).tokens for seed in range(3)]
    one, again = (lh.knockout_heads(gqa, prompts, out=tmp_path / "a", progress=False, kind="uniform") for _ in range(2))
    torch.testing.assert_close(one.per_trial, again.per_trial)
    found, twice = (
        lh.ranking.sahara(gqa, prompts, k=2, out=tmp_path / "b", progress=False, kind="uniform") for _ in range(2)
    )
    assert found.order == twice.order


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: lh.knockout_heads(m, [], kind="uniform"), "there are no texts"),
        (
            lambda m: lh.knockout_heads(m, ["ab"], measure="loss", kind="uniform"),
            "measure='loss': use 'kl', or a function",
        ),
        (lambda m: lh.knockout_heads(m, ["ab"], kind="sideways"), "unknown kind of ablation 'sideways'"),
        (
            lambda m: lh.knockout_heads(m, ["ab"], measure=lambda p, q: q, kind="uniform"),
            "the measure gave .* must be one finite number",
        ),
        (lambda m: lh.ranking.sahara(m, ["ab"], kind="uniform"), "one prompt: the direction"),
        (lambda m: lh.ranking.sahara(m, ["ab", "cd"], k=0, kind="uniform"), "k=0"),
    ],
)
def test_what_does_not_fit_is_named(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(tiny("llama-gqa"))
    assert not has_hooks(tiny("llama-gqa"))
