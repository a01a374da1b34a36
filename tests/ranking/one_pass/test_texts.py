"""Scores of texts: each equals a plain loop on every attention variant, has its analytic value, and finds what was planted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformer_lens.head_detector import detect_head

import lens_heads as lh
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import has_hooks
from lens_heads.ranking.one_pass.repeated import RepeatedProbe, ordinary_tokens
from lens_heads.ranking.one_pass.scorers import REPEATED_SCORERS, TEXT_SCORERS
from lens_heads.ranking.one_pass.text_pass import read_text
from tests import reference, zoo
from tests.conftest import tiny
from tests.ranking.one_pass import rows as loops

ELSEWHERE = ("far_mass",)
"""Methods whose loop is in a test of its own."""


def ids(n: int, seed: int = 0, kinds: int = 40) -> torch.Tensor:
    """Random tokens of few kinds, so that some occur again."""
    tokens = torch.randint(3, 3 + kinds, (n,), generator=torch.Generator().manual_seed(seed))
    tokens[0] = 1
    return tokens


def by_loops(arch: str, text: Any, names: Any) -> dict[str, torch.Tensor]:
    plain = reference.Plain(zoo.hf_model(arch), text.tokens)
    counted = [t for t in range(len(text.tokens)) if t >= text.first]
    return {
        name: torch.tensor([[loops.LOOPS[name](head, counted, text) for head in layer] for layer in plain.A])
        for name in names
    }


def assert_equal(found: Any, expected: dict[str, torch.Tensor]) -> None:
    for name, values in expected.items():
        torch.testing.assert_close(
            found[name], values.float(), atol=2e-5, rtol=2e-4, msg=lambda m, name=name: f"{name}: {m}"
        )


def test_every_score_of_a_text_matches_a_loop_written_from_the_formula(arch: str, model: Any) -> None:
    probe = lh.plain_texts([ids(30)], min_distance=4)
    names = [name for name in TEXT_SCORERS if name not in ELSEWHERE]
    found = lh.score_heads(model, probe, names, progress=False)
    (text,) = probe.encode(model.tokenizer, head_geometry(model))
    assert_equal({name: scores.values for name, scores in found.items()}, by_loops(arch, text, names))
    assert not has_hooks(model)


def test_every_score_of_a_repeated_block_matches_a_loop(arch: str, model: Any) -> None:
    probe = lh.repeated_blocks(model, block=5, copies=4, seed=1)
    names = [*REPEATED_SCORERS, "duplicate", "previous"]
    found = lh.score_heads(model, probe, names, progress=False)
    (text,) = probe.encode(model.tokenizer, head_geometry(model))
    assert_equal({name: scores.values for name, scores in found.items()}, by_loops(arch, text, names))
    torch.testing.assert_close(found["echo"].values, found["duplicate"].values)


def test_the_number_of_rows_at_a_time_changes_nothing(arch: str, model: Any) -> None:
    shape = head_geometry(model)
    (text,) = lh.plain_texts([ids(30)], min_distance=4).encode(model.tokenizer, shape)
    scorers = [scorer for name, scorer in TEXT_SCORERS.items() if name != "far_mass" or arch != "gpt2"]
    whole, parts = (read_text(model, text, scorers, chunk) for chunk in (64, 7))
    assert_equal(parts, whole)


def test_only_rows_of_the_response_count() -> None:
    model, prompt, response = tiny("gpt2"), "abcdefgh", "abczzz"
    probe = lh.plain_texts([(prompt, response)])
    (text,) = probe.encode(model.tokenizer, head_geometry(model))
    assert text.first == len(model.tokenizer(prompt).input_ids)
    names = ["previous", "duplicate", "span", "sink", "entropy"]
    found = lh.score_heads(model, probe, names, progress=False)
    assert_equal({name: scores.values for name, scores in found.items()}, by_loops("gpt2", text, names))
    rows = reference.Plain(zoo.hf_model("gpt2"), text.tokens).A[0][1]
    counted = [float(rows[t, 0]) for t in range(text.first, len(text))]
    assert found["sink"]["L0H1"] == pytest.approx(sum(counted) / len(counted), abs=1e-5)


def uniform_model() -> Any:
    hf = zoo.hf_model("llama-gqa")
    with torch.no_grad():
        for layer in hf.model.layers:
            layer.self_attn.q_proj.weight.zero_()
    return zoo.bridge("llama-gqa", hf=hf)


def test_uniform_attention_has_the_analytic_scores() -> None:
    model, block, copies = uniform_model(), 6, 3
    probe = lh.repeated_blocks(model, block=block, copies=copies)
    found = lh.score_heads(
        model, probe, ["induction", "echo", "previous", "entropy", "span_tokens", "sink"], progress=False
    )
    # Block position i is absolute position i + 1, which attends to i + 2 keys.
    expected = sum((i // block) / (i + 2) for i in range(block, block * copies)) / (block * (copies - 1))
    n = 1 + block * copies
    positions = range(probe.start + 1, n)
    analytic = {
        "induction": expected,
        "echo": expected,
        "previous": sum(1 / (t + 1) for t in positions) / len(positions),
        "entropy": 1.0,
        "span_tokens": sum(t / 2 for t in positions) / len(positions),
        "sink": sum(1 / (t + 1) for t in positions) / len(positions),
    }
    for name, value in analytic.items():
        torch.testing.assert_close(found[name].values, torch.full((3, 4), value), atol=1e-5, rtol=1e-5)
    text = lh.score_heads(model, lh.plain_texts([ids(20)]), ["far_mass"], progress=False)["far_mass"]
    torch.testing.assert_close(text.values, torch.full((3, 4), 21 / 40), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("arch", [name for name in zoo.ARCHITECTURES if name != "gpt2"])
def test_far_mass_matches_a_loop(arch: str) -> None:
    """From the rotated queries and keys of the run itself, turned back one position at a time."""
    model, tokens = tiny(arch), ids(24)
    found = lh.score_heads(model, lh.plain_texts([tokens]), ["far_mass"], progress=False)["far_mass"].values
    shape, seen = head_geometry(model), {}
    names = [f"blocks.{layer}.attn.hook_{part}" for layer in range(3) for part in ("rot_q", "rot_k", "cos", "sin")]
    with torch.no_grad():
        hooks = [(name, lambda x, hook, name=name: seen.update({name: x})) for name in names]
        model.run_with_hooks(tokens[None], fwd_hooks=hooks)
    for layer in range(3):
        q, k, cos, sin = (
            seen[f"blocks.{layer}.attn.hook_{part}"][0].double() for part in ("rot_q", "rot_k", "cos", "sin")
        )
        turn = [_rotation(cos[j], sin[j]) for j in range(len(tokens))]
        for head in range(shape.n_heads):
            mean_q = torch.stack([turn[j].T @ q[j, head] for j in range(len(tokens))]).mean(0)
            mean_k = torch.stack([turn[j].T @ k[j, head // shape.group] for j in range(len(tokens))]).mean(0)
            scale = model.blocks[layer].attn.original_component.scaling
            logits = torch.stack([(turn[-1] @ mean_q) @ (turn[j] @ mean_k) * scale for j in range(len(tokens))])
            cap, window = shape.attn_softcap, shape.windows[layer]
            logits = logits if cap is None else cap * torch.tanh(logits / cap)
            if window is not None:
                logits[: len(tokens) - window] = -torch.inf
            expected, mass = 0.0, 0.0
            for a in logits.softmax(0):
                mass += float(a)
                expected += mass / len(tokens)
            assert float(found[layer, head]) == pytest.approx(expected, abs=2e-5), (layer, head)


def _rotation(cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The matrix of one position's rotation."""
    e = len(cos)
    half = torch.zeros(e, e, dtype=cos.dtype)
    half[: e // 2, e // 2 :] = -torch.eye(e // 2)
    half[e // 2 :, : e // 2] = torch.eye(e // 2)
    return torch.diag(cos) + torch.diag(sin) @ half


@pytest.mark.parametrize(
    ("ours", "theirs", "rows"),
    [
        ("induction", "induction_head", "repeats"),
        ("duplicate", "duplicate_token_head", "repeats"),
        ("previous", "previous_token_head", "counted"),
    ],
)
def test_agrees_with_transformer_lens_up_to_its_normalisation(ours: str, theirs: str, rows: str) -> None:
    """`detect_head` divides the attention inside its mask by all attention: one per row, so by the number of rows."""
    model, text = tiny("gpt2"), "abcdefghi" * 2
    probe = RepeatedProbe(model.to_tokens(text, prepend_bos=True)[0], block=9, copies=2, seed=0)
    assert len(probe.tokens) == 19
    with torch.no_grad():
        cache = model.run_with_cache(probe.tokens[None], remove_batch_dim=True)[1]
    detected = detect_head(model, text, theirs, cache=cache, error_measure="mul")
    counted = 9 if rows == "repeats" else 17
    found = lh.score_heads(model, probe, [ours], progress=False)[ours].values
    extra = 0.0
    if ours == "previous":  # Row 1, which attends to BOS, is in its mask, and not among our counted rows.
        extra = torch.stack([cache[f"blocks.{layer}.attn.hook_pattern"][:, 1, 0] for layer in range(3)])
    torch.testing.assert_close((found * counted + extra) / 19, detected.float(), atol=1e-5, rtol=1e-4)


def test_several_seeds_give_intervals_and_kv_heads_take_the_maximum(gqa: Any) -> None:
    probes = [lh.repeated_blocks(gqa, block=8, copies=2, seed=seed) for seed in range(6)]
    found = lh.score_heads(gqa, probes, ["induction"], progress=False)["induction"]
    assert found.trial_ids == tuple(f"repeated-8x2-{seed}" for seed in range(6))
    _, low, high = found.interval()
    assert bool((low < high).all())
    kv = lh.units.to_kv_heads(found, 2)
    torch.testing.assert_close(kv.values, found.values.reshape(3, 2, 2).amax(-1))


def test_the_probe_is_bos_and_copies_of_distinct_ordinary_tokens(gqa: Any) -> None:
    probe = lh.repeated_blocks(gqa, block=7, copies=3, seed=5)
    assert int(probe.tokens[0]) == gqa.tokenizer.bos_token_id
    copies = probe.tokens[probe.start :].reshape(3, 7)
    assert bool((copies == copies[0]).all())
    assert len(copies[0].unique()) == 7
    assert set(copies[0].tolist()) <= set(ordinary_tokens(gqa.tokenizer, 256).tolist())
    assert not {0, 1, 2} & set(ordinary_tokens(gqa.tokenizer, 256).tolist())
    assert not torch.equal(probe.tokens, lh.repeated_blocks(gqa, block=7, copies=3, seed=6).tokens)
    assert lh.repeated_blocks(gqa).block == min(511 // 4, 253)


def test_a_window_shorter_than_the_block_is_marked() -> None:
    model = tiny("gemma3")
    with pytest.warns(
        UserWarning, match=r"sliding window of layers 0, 2 does not reach back 8 tokens, so induction can"
    ):
        found = lh.score_heads(
            model, lh.repeated_blocks(model, block=9, copies=2), ["induction", "previous"], progress=False
        )
    assert found["induction"].meta["blind_layers"] == {"induction": [0, 2]}
    assert float(found["induction"].values[[0, 2]].abs().max()) == 0
    assert float(found["induction"].values[1].min()) > 0
    window = lh.head_geometry(model).windows[0]
    assert window is not None
    with pytest.warns(UserWarning, match=f"does not reach back {window} tokens, so echo can only be 0 there"):
        found = lh.score_heads(
            model, lh.repeated_blocks(model, block=window, copies=2), ["induction", "echo"], progress=False
        )
    assert found["echo"].meta["blind_layers"] == {"echo": [0, 2]}
    assert float(found["echo"].values[[0, 2]].abs().max()) == 0
    assert float(found["induction"].values[[0, 2]].min()) > 0  # It looks back one token less, the window's last.


def test_a_window_shorter_than_the_distance_of_receiver_is_marked() -> None:
    model = tiny("gemma3")
    window = lh.head_geometry(model).windows[0]
    assert window is not None
    with pytest.warns(UserWarning, match="so receiver can only be 0 there: use a smaller min_distance"):
        far = lh.score_heads(model, lh.plain_texts([ids(40)], min_distance=window), ["receiver"], progress=False)
    assert float(far["receiver"].values[[0, 2]].abs().max()) == 0
    assert float(far["receiver"].values[1].abs().min()) > 0


def test_the_methods_of_none_are_those_that_every_text_has(gqa: Any) -> None:
    found = lh.score_heads(tiny("gpt2"), lh.plain_texts([ids(12, 3).repeat(2)]), progress=False)
    assert set(found) == {"previous", "duplicate", "span", "span_tokens", "sink", "entropy"}


def test_one_prompt_with_its_response_is_one_text() -> None:
    assert len(lh.plain_texts(("a prompt", "a response")).texts) == 1
    assert len(lh.plain_texts(["one text", "another"]).texts) == 2
    assert len(lh.plain_texts([("a prompt", "a response"), "another"]).texts) == 2


def test_own_scorers_of_rows_join_the_pass(gqa: Any) -> None:
    own = lh.Scorer("self", lambda view: view.back(0), rows="every")
    found = lh.score_heads(gqa, lh.plain_texts([ids(12)]), [own, "previous"], progress=False)
    A = reference.Plain(zoo.hf_model("llama-gqa"), ids(12)).A
    assert found["self"]["L1H2"] == pytest.approx(float(A[1][2].diagonal()[1:].mean()), abs=1e-5)
    wrong = replace(own, name="wrong", score=lambda view: view.pattern)
    with pytest.raises(
        ValueError, match=r"wrong returned shape \[4, 12, 12\]: it must return one score per head and row"
    ):
        lh.score_heads(gqa, lh.plain_texts([ids(12)]), [wrong], progress=False)


def test_a_run_continues_from_its_folder(gqa: Any, tmp_path: Any) -> None:
    texts = lh.plain_texts([ids(12), ids(14, 1)])
    first = lh.score_heads(gqa, texts, ["sink"], out=tmp_path / "run", progress=False)["sink"]
    again = lh.score_heads(gqa, texts, ["sink"], out=tmp_path / "run", progress=False)["sink"]
    torch.testing.assert_close(first.per_trial, again.per_trial)
    with pytest.raises(ValueError, match="trials"):
        lh.score_heads(gqa, lh.plain_texts([ids(13)]), ["sink"], out=tmp_path / "run", progress=False)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m: lh.score_heads(m, lh.plain_texts(["ab"]), ["locos"]),
            r"locos reads needles, but was given plain texts.*needle",
        ),
        (
            lambda m: lh.score_heads(m, lh.plain_texts(["ab"]), ["induction"]),
            r"induction reads a repeated block of tokens, but was given plain texts.*repeated_blocks",
        ),
        (
            lambda m: lh.score_heads(m, lh.repeated_blocks(m, block=4, copies=2), ["token_map"]),
            r"token_map reads weights, but was given a repeated block of tokens.*token_maps",
        ),
        (
            lambda m: lh.score_heads(m, lh.repeated_blocks(m, block=4, copies=2), ["inducton"]),
            r"did you mean 'induction'",
        ),
        (
            lambda m: lh.score_heads(m, lh.repeated_blocks(m, block=4, copies=2), teacher_forced=True),
            r"teacher_forced= applies to trials",
        ),
        (lambda m: lh.repeated_blocks(m, block=300, copies=2), r"block=300: 2 copies are 601 tokens.*at most 128"),
        (lambda m: lh.repeated_blocks(m, block=1, copies=2), r"block=1: must be an integer of at least 2"),
        (lambda m: lh.repeated_blocks(m, block=4, copies=1), r"copies=1"),
        (lambda m: lh.plain_texts([]), r"there are no texts"),
        (
            lambda m: lh.score_heads(m, lh.plain_texts([[5]]), ["sink"]),
            r"text-0: 1 tokens, but a row needs one before it",
        ),
        (
            lambda m: lh.score_heads(m, lh.plain_texts([("ab", "")]), ["sink"]),
            r"text-0: the response has no tokens",
        ),
        (lambda m: lh.score_heads(m, lh.plain_texts([[5, 999]]), ["sink"]), r"text-0: token id 999"),
        (
            lambda m: lh.score_heads(m, lh.plain_texts(["a" * 600]), ["sink"]),
            r"context window of llama-gqa is 512",
        ),
        (
            lambda m: lh.score_heads(m, lh.plain_texts([[5, 6, 7]]), ["duplicate"]),
            r"no row counts for duplicate",
        ),
        (
            lambda m: lh.score_heads(m, lh.plain_texts([ids(12)]), ["receiver"]),
            r"receiver: only 0 tokens .* min_distance=32",
        ),
        (
            lambda m: lh.score_heads(m, [lh.plain_texts(["ab"]), lh.repeated_blocks(m, block=4, copies=2)]),
            r"RepeatedProbe and TextProbe: score different probes separately",
        ),
        (
            lambda m: lh.score_heads(tiny("gpt2"), lh.plain_texts([ids(12)]), ["far_mass"]),
            r"gpt2 has no rotary positions",
        ),
    ],
)
def test_what_does_not_fit_is_named(gqa: Any, call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(gqa)
    assert not has_hooks(gqa)
