"""A prefill replayed from the lowest ablated layer is the prefill under that ablation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.answering.evaluation import answer_batch
from lens_heads.heads.conditions import Condition
from lens_heads.interventions import replay
from lens_heads.interventions.replay import prefilled, shared_beginning, together
from lens_heads.model.forward import Cache, advance, fast_attention, left_pad, prefill
from lens_heads.model.hooks import has_hooks
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.pairs import TokenPair
from tests import zoo
from tests.conftest import few_shot, random_trial, tiny

TRIALS = [random_trial(0, n=24), random_trial(1, n=17)]


@pytest.mark.parametrize("layer", [0, 1, 2, 3])
@pytest.mark.parametrize("chunk", [512, 5])
def test_replaying_is_prefilling_under_the_ablation(model: Any, layer: int, chunk: int) -> None:
    heads = [(layer, 1), (2, 3)] if layer < 3 else []
    kept = prefilled(model, TRIALS)
    assert kept is not None
    last = torch.tensor([[7, 8], [9, 10]])
    with torch.no_grad(), lh.ablate(model, heads, kind="scale", factor=3.0):
        wanted = Cache(model, 2)
        prefill(model, kept.tokens, wanted, kept.pads)
        found = kept.replay(model, [layer], chunk)
        for at in range(3):
            for row, pad in enumerate(kept.pads.tolist()):  # What stands at padding is never attended to.
                mine, theirs = (cache.values(at)[row, :, pad:] for cache in (found, wanted))
                torch.testing.assert_close(mine, theirs, atol=2e-5, rtol=1e-4)
        rows = [advance(model, last, cache, kept.pads, logits=2) for cache in (found, wanted)]
    torch.testing.assert_close(rows[0], rows[1], atol=1e-4, rtol=1e-4)
    assert not has_hooks(model)


@pytest.mark.parametrize("trials", [TRIALS, few_shot((12, 12))], ids=["apart", "few-shot"])
def test_what_is_kept_of_a_bfloat16_model_and_replayed_is_what_it_computes(
    arch: str, trials: list[EncodedTrial]
) -> None:
    model = tiny(arch, torch.bfloat16)
    kept = prefilled(model, trials)
    assert kept is not None
    assert {stream.dtype for stream in kept.residuals} == {torch.bfloat16}
    tokens, pads = left_pad([trial.tokens[:-1] for trial in trials], "cpu")
    with torch.no_grad(), lh.ablate(model, ["L1H1", "L2H3"], kind="scale", factor=3.0), fast_attention(model):
        wanted, found = Cache(model, 2), kept.replay(model, [1])
        prefill(model, tokens, wanted, pads)
    for at in range(3):
        for row, pad in enumerate(pads.tolist()):
            mine, theirs = (cache.values(at)[row, :, pad:] for cache in (found, wanted))
            assert mine.dtype == theirs.dtype
            torch.testing.assert_close(mine.float(), theirs.float(), rtol=0, atol=0.02 * float(theirs.abs().max()))
    changed = (found.values(2) - kept.cache.values(2)).abs().max()
    assert changed > 0.1 * kept.cache.values(2).abs().max(), "an ablation that changes nothing proves nothing"


def test_replays_do_not_disturb_each_other(gqa: Any) -> None:
    kept = prefilled(gqa, TRIALS)
    assert kept is not None
    before = [kept.cache.values(layer).clone() for layer in range(3)]
    options: dict[str, Any] = {"max_new_tokens": 3, "filled": kept, "begins": [1]}
    with lh.ablate(gqa, "L1H0", kind="zero"):
        first = answer_batch(gqa, TRIALS, **options)
    with lh.ablate(gqa, "L2H0", kind="zero"):
        answer_batch(gqa, TRIALS, **options)
    with lh.ablate(gqa, "L1H0", kind="zero"):
        again, plain = answer_batch(gqa, TRIALS, **options), answer_batch(gqa, TRIALS, 3)
    assert [r.record for r in first] == [r.record for r in again]
    assert [r.record["logprob"] for r in first] == pytest.approx([r.record["logprob"] for r in plain], abs=1e-4)
    for layer in range(3):
        assert torch.equal(kept.cache.values(layer), before[layer])


def test_layers_below_are_not_computed_again(gqa: Any) -> None:
    kept = prefilled(gqa, TRIALS)
    assert kept is not None
    ran: list[int] = []
    handles = [
        block.mlp.register_forward_hook(lambda module, args, out, i=i: ran.append(i))
        for i, block in enumerate(gqa.blocks)
    ]
    with torch.no_grad():
        kept.replay(gqa, [2])
    for handle in handles:
        handle.remove()
    assert ran == [2]


def test_a_run_too_large_to_keep_is_not_kept_and_changes_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("qwen3")
    scores = lh.HeadScores.from_trials(
        "mine", torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)), ["a", "b"]
    )
    options: dict[str, Any] = {"ks": (1, 3), "kind": "zero", "generate": False, "progress": False, "batch_size": 2}
    with_replay = lh.ablation_curve(model, TRIALS, scores, **options).per_trial
    monkeypatch.setattr(replay, "MOST_BYTES", 10)
    assert prefilled(model, TRIALS) is None
    without = lh.ablation_curve(model, TRIALS, scores, **options).per_trial
    assert with_replay["logprob"].to_list() == pytest.approx(without["logprob"].to_list(), abs=1e-4)
    assert with_replay["logprob"].nunique() > 4


def test_tasks_that_use_the_same_ids_do_not_share_a_prefill() -> None:
    """Ids are unique inside a task; the same question with another context may well have the same id in another."""
    model, mine = tiny("llama-gqa"), [random_trial(0, n=24)]
    others = [replace(mine[0], tokens=random_trial(5, n=24).tokens)]
    scores = lh.HeadScores.from_trials("mine", torch.randn(2, 3, 4), ["a", "b"])
    options: dict[str, Any] = {"ks": (1,), "kind": "zero", "generate": False, "progress": False, "controls": ()}
    curve = lh.ablation_curve(model, mine, scores, specificity={"other": others}, **options)
    wanted = lh.evaluate(model, others, generate=False, progress=False).mean("logprob")
    assert curve.values(Condition("none", "none", 0), "logprob", task="other").iloc[0] == pytest.approx(
        wanted, abs=1e-4
    )


@pytest.mark.parametrize("kind", ["gpt_neo", "falcon"])
def test_models_whose_blocks_hand_on_tuples_are_resumed_too(kind: str) -> None:
    model, trial = tuple_model(kind), random_trial(0, n=24)
    kept = prefilled(model, [trial])
    assert kept is not None
    assert kept.tuples
    with torch.no_grad(), lh.ablate(model, "L1H1", kind="zero"):
        wanted = Cache(model, 1)
        prefill(model, kept.tokens, wanted, kept.pads)
        found = kept.replay(model, [1])
        rows = [advance(model, trial.tokens[None, -1:], cache, kept.pads) for cache in (found, wanted)]
    torch.testing.assert_close(rows[0], rows[1], atol=1e-4, rtol=1e-4)
    (pair,) = lh.trials.make_pairs([trial], model.tokenizer, lh.head_geometry(model))
    with torch.no_grad(), lh.patch(model, "L1H1", pair, positions="all"):
        patched = model(TokenPair.of(pair).corrupt[None, :-1])[0, 23:].log_softmax(-1)
    by_hand = float(patched.gather(-1, pair.answer_tokens[:, None]).mean())
    scores = lh.patch_heads(model, [pair], positions="all", progress=False)
    assert scores["L1H1"] + scores.meta["trials"][0]["corrupt"] == pytest.approx(by_hand, abs=1e-4)


def tuple_model(kind: str) -> Any:
    """A tiny random model of a family whose Hugging Face loop takes `outputs[0]` of a block."""
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes: dict[str, Any] = {
        "gpt_neo": dict(num_layers=2, num_heads=4, attention_types=[[["global"], 2]], intermediate_size=48),
        "falcon": dict(num_hidden_layers=2, num_attention_heads=4, alibi=False),
    }
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        kind,
        hidden_size=32,
        vocab_size=zoo.VOCAB,
        max_position_embeddings=512,
        bos_token_id=1,
        eos_token_id=2,
        **sizes[kind],
    )
    hf = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    hf.config.architectures = [type(hf).__name__]
    model = TransformerBridge.boot_transformers(
        kind, hf_model=hf, tokenizer=zoo.tokenizer(), device="cpu", dtype=torch.float32
    )
    model.enable_compatibility_mode(no_processing=True, disable_warnings=True)
    return model.eval()


@pytest.mark.parametrize("layer", [0, 1, 2, 3])
@pytest.mark.parametrize("n", [12, 1])
def test_a_shared_beginning_run_once_changes_nothing(model: Any, layer: int, n: int) -> None:
    trials = few_shot((n, n, n))
    kept = prefilled(model, trials)
    assert kept is not None
    assert kept.shared is not None
    assert (kept.shared.tokens.shape, kept.tokens.shape) == ((1, 20), (3, n - 1))
    heads = [(layer, 1), (2, 3)] if layer < 3 else []
    with lh.ablate(model, heads, kind="zero"):
        found = answer_batch(model, trials, 3, filled=kept, begins=[layer])
        wanted = answer_batch(model, trials, 3)
        with torch.no_grad():
            beginning = kept.shared.replay(model, [layer])
        again = answer_batch(model, trials, 3, filled=kept, begins=[layer], beginning=beginning)
    for mine in (found, again):
        assert [r.record["text"] for r in mine] == [r.record["text"] for r in wanted]
        assert [r.record["logprob"] for r in mine] == pytest.approx([r.record["logprob"] for r in wanted], abs=1e-4)


def test_trials_that_share_a_beginning_are_batched_by_length() -> None:
    trials = few_shot((5, 3, 5, 3, 5))
    assert [[trial.id for trial in batch] for batch in together(trials, 2)] == [
        ["random-1", "random-3"],
        ["random-0", "random-2"],
        ["random-4"],
    ]
    apart = [random_trial(i, n=20 + i % 2) for i in range(4)]
    assert [len(batch) for batch in together(apart, 3)] == [3, 1]


def test_a_short_beginning_is_not_run_apart(gqa: Any) -> None:
    trials = [replace(trial, tokens=trial.tokens[10:]) for trial in few_shot((40, 40))]  # 10 of 50 tokens.
    kept = prefilled(gqa, trials)
    assert kept is not None
    assert kept.shared is None
    assert shared_beginning(gqa, trials[:1]) is None


def test_the_beginning_is_run_once_for_all(gqa: Any) -> None:
    kept = prefilled(gqa, few_shot((12, 12, 12)))
    assert kept is not None
    rows: list[int] = []
    handle = gqa.blocks[2].mlp.register_forward_hook(
        lambda module, args, out: rows.append(args[0].shape[0] * args[0].shape[1])
    )
    with torch.no_grad():
        kept.replay(gqa, [1])
    handle.remove()
    assert rows == [20, 33]
