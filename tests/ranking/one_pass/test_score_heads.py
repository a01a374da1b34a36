"""score_heads as a user meets it: batches, chunks, interruptions, hooks, outcomes, and every refused input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.heads.scores import HeadScores
from lens_heads.model.forward import fast_attention
from lens_heads.model.hooks import has_hooks, hooked
from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.scorers import SCORERS
from lens_heads.trials.digests import made_on
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.trial import Trial
from tests import zoo
from tests.conftest import random_trial, tiny

LENGTHS = ((24, (7, 11)), (17, (0, 3)), (31, (26, 31)), (9, (2, 4)), (40, (20, 33)))


def trials_of_all_lengths() -> list[EncodedTrial]:
    return [random_trial(seed, n, needle) for seed, (n, needle) in enumerate(LENGTHS)]


def score(model: Any, trials: Any, **options: Any) -> dict[str, HeadScores]:
    return lh.score_heads(model, trials, progress=False, **options)


def forced(model: Any, trials: Any, **options: Any) -> dict[str, HeadScores]:
    return score(model, trials, teacher_forced=True, **options)


def assert_same(a: dict[str, HeadScores], b: dict[str, HeadScores], tolerance: float = 0.0) -> None:
    assert a.keys() == b.keys()
    for method in a:
        assert a[method].trial_ids == b[method].trial_ids
        if tolerance:
            torch.testing.assert_close(a[method].per_trial, b[method].per_trial, atol=tolerance, rtol=tolerance)
        else:
            assert torch.equal(a[method].per_trial, b[method].per_trial), method


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is generated passes the gate, and its first and last step are the answer."""
    monkeypatch.setattr("lens_heads.trials.answers.passes", lambda trial, text: True)
    monkeypatch.setattr(
        "lens_heads.trials.answers.answer_steps", lambda trial, generated, tokenizer: sorted({0, len(generated) - 1})
    )


# One result, however it is computed


@pytest.mark.parametrize("direction", ["raw", "exact"])
def test_batches_give_what_single_trials_give(model: Any, direction: str) -> None:
    trials = trials_of_all_lengths()
    single = forced(model, trials, direction=direction)
    batched = forced(model, trials, direction=direction, batch_size=3)
    assert set(single) == set(SCORERS)
    assert_same(single, batched, 1e-4)
    # The trials differ from each other by far more than that.
    assert (single["locos"].per_trial[0] - single["locos"].per_trial[1]).abs().max() > 0.01


@pytest.mark.slow
def test_batches_decode_what_single_trials_decode(model: Any, answered: None) -> None:
    trials = trials_of_all_lengths()
    single = score(model, trials, max_new_tokens=5)
    batched = score(model, trials, max_new_tokens=5, batch_size=3)
    assert [t["text"] for t in single["copy"].meta["trials"]] == [t["text"] for t in batched["copy"].meta["trials"]]
    assert set(single) == set(SCORERS)
    assert_same(single, batched, 1e-4)


def test_decoding_is_the_plain_greedy_loop(arch: str, model: Any, answered: None) -> None:
    scores = score(model, trials_of_all_lengths()[:3], batch_size=3, max_new_tokens=4)
    for trial, record in zip(trials_of_all_lengths(), scores["locos"].meta["trials"], strict=False):
        tokens = trial.tokens
        for _ in range(4):
            with torch.no_grad():
                best = zoo.hf_model(arch)(tokens[None]).logits[0, -1].argmax()
            tokens = torch.cat([tokens, best[None]])
            if best == 2 or "\n" in zoo.tokenizer().decode([int(best)]):
                break
        new = tokens[len(trial) :].tolist()
        new = new[:-1] if new[-1] == 2 else new
        assert record["text"] == zoo.tokenizer().decode(new).split("\n")[0]


@pytest.mark.slow
@pytest.mark.parametrize("decode", [False, True])
def test_chunks_are_a_matter_of_memory_only(model: Any, decode: bool, answered: None) -> None:
    trials = [random_trial(1, 40, (20, 33)), random_trial(2, 15, (3, 6))]
    results = [
        score(model, trials, teacher_forced=not decode, chunk=chunk, max_new_tokens=3, batch_size=1 + (chunk == 3))
        for chunk in (1, 3, 512)
    ]
    assert_same(results[0], results[2], 1e-4)
    assert_same(results[1], results[2], 1e-4)


def test_one_method_alone_gives_what_all_together_give(gqa: Any, trial: EncodedTrial) -> None:
    together = forced(gqa, [trial])
    for method in SCORERS:
        alone = forced(gqa, [trial], methods=method)
        assert list(alone) == [method]
        torch.testing.assert_close(alone[method].values, together[method].values, atol=1e-6, rtol=1e-5)


def test_text_trials_are_composed_and_scored(gqa: Any) -> None:
    one = Trial("t", "Which one?", "red", haystack="It was cold. It was late.", needle="The door is red.", chat=False)
    encoded = one.encode(gqa.tokenizer)
    assert_same(forced(gqa, [one]), forced(gqa, [encoded]))
    start, end = encoded.needle  # type: ignore[misc]
    assert zoo.tokenizer().decode(encoded.tokens[start:end]).strip() == "The door is red."


# Interrupted and continued


class Stopping:
    """LOCOS that is interrupted when it comes to a trial for the n-th time."""

    def __init__(self, after: int) -> None:
        self.calls, self.after, self.score = 0, after, SCORERS["locos"].score

    def __call__(self, view: Any) -> torch.Tensor:
        self.calls += view.layer == 0
        if self.calls > self.after:
            raise KeyboardInterrupt
        return self.score(view)


def stopping(after: int) -> Scorer:
    return Scorer("locos", Stopping(after), "answer", True, SCORERS["locos"].paper)


def shards(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mtime_ns for file in (folder / "trials").glob("*.safetensors")}


@pytest.mark.parametrize(("batch_size", "finished"), [(1, 2), (2, 2)])
def test_a_continued_run_equals_one_that_was_never_stopped(
    gqa: Any, tmp_path: Path, batch_size: int, finished: int
) -> None:
    trials = trials_of_all_lengths()
    options: dict[str, Any] = {"batch_size": batch_size, "out": tmp_path / "run"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCORERS, "locos", stopping(2))
        with pytest.raises(KeyboardInterrupt):
            forced(gqa, trials, methods=["locos", "headkv"], **options)
    assert not has_hooks(gqa)
    before = shards(tmp_path / "run")
    assert len(before) == finished
    assert not (tmp_path / "run" / "locos.json").exists()
    continued = forced(gqa, trials, methods=["locos", "headkv"], **options)
    whole = forced(gqa, trials, methods=["locos", "headkv"], batch_size=batch_size)
    assert_same(continued, whole)
    after = shards(tmp_path / "run")
    assert len(after) == len(trials)
    assert before.items() <= after.items()  # What was finished was not done again.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCORERS, "locos", stopping(0))
        third = forced(gqa, trials, methods=["locos", "headkv"], **options)  # Nothing is left to do.
    assert_same(third, whole)


def test_a_run_folder_holds_the_scores_as_files(gqa: Any, tmp_path: Path) -> None:
    scores = forced(gqa, trials_of_all_lengths(), out=tmp_path / "run")
    for method, found in scores.items():
        loaded = HeadScores.load(tmp_path / "run" / f"{method}.json")
        assert torch.equal(loaded.per_trial, found.per_trial)
        assert loaded.trial_ids == found.trial_ids
        assert loaded.outcomes == {"passed": 5}


@pytest.mark.slow
def test_killed_outright_and_continued_equals_uninterrupted(gqa: Any, tmp_path: Path) -> None:
    """SIGKILL, in the middle of a trial: no handler runs, no file is closed."""
    script = """
        import sys, time
        import torch
        torch.set_num_threads(int(sys.argv[2]))
        import lens_heads as lh
        from lens_heads.ranking.one_pass.definition import Scorer
        from lens_heads.ranking.one_pass.scorers import SCORERS
        from tests.conftest import tiny
        from tests.ranking.one_pass.test_score_heads import trials_of_all_lengths

        def slow(view):
            time.sleep(0.15)
            return score(view)

        score = SCORERS["locos"].score
        SCORERS["locos"] = Scorer("locos", slow, "answer", True, "")
        lh.score_heads(tiny("llama-gqa"), trials_of_all_lengths(), ["locos", "copy"], teacher_forced=True,
                       progress=False, out=sys.argv[1])
        print("finished")
    """
    run = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(run), str(torch.get_num_threads())],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    end = time.monotonic() + 60
    while len(shards(run)) < 2 and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    out, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors.decode()
    assert b"finished" not in out
    before = shards(run)
    assert 2 <= len(before) < 5
    assert not (run / "locos.json").exists()
    continued = forced(gqa, trials_of_all_lengths(), methods=["locos", "copy"], out=run)
    assert_same(continued, forced(gqa, trials_of_all_lengths(), methods=["locos", "copy"]))
    assert before.items() <= shards(run).items()


def test_a_shard_cut_short_is_scored_again(gqa: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    whole = forced(gqa, trials_of_all_lengths(), out=run)
    cut = sorted((run / "trials").iterdir())[2]
    cut.write_bytes(cut.read_bytes()[:100])
    (run / "trials" / "left.7.partial").write_bytes(b"half")
    assert_same(forced(gqa, trials_of_all_lengths(), out=run), whole)
    assert cut.stat().st_size > 100


def test_a_run_folder_of_other_settings_is_refused_with_each_difference(gqa: Any, tmp_path: Path) -> None:
    trials = trials_of_all_lengths()
    forced(gqa, trials, out=tmp_path / "run")
    with pytest.raises(ValueError, match="holds a run with different settings") as error:
        forced(gqa, trials, out=tmp_path / "run", direction="exact", methods="locos")
    assert "direction: raw in the folder, exact now" in str(error.value)
    assert "methods: ['attention_mass', 'attention_mass_no_sink', 'attention_spatial'" in str(error.value)
    assert "weights" not in str(error.value)
    with pytest.raises(ValueError, match="n_trials: 5 in the folder, 4 now") as error:
        forced(gqa, trials[:4], out=tmp_path / "run")
    assert "  trials: " in str(error.value)
    with pytest.raises(ValueError, match=r"max_new_tokens: None in the folder, 50 now\n  teacher_forced: True"):
        score(gqa, trials, out=tmp_path / "run")
    with pytest.raises(ValueError, match="weights: ") as error:
        forced(zoo.bridge("llama-gqa", seed=1), trials, out=tmp_path / "run")
    assert "model" not in str(error.value).splitlines()[1]


def test_batches_and_chunks_are_no_settings(gqa: Any, tmp_path: Path) -> None:
    one = forced(gqa, trials_of_all_lengths(), out=tmp_path / "run")
    two = forced(gqa, trials_of_all_lengths(), out=tmp_path / "run", batch_size=3, chunk=1)
    assert_same(one, two)


# Hooks


def breaking(view: Any) -> torch.Tensor:
    if view.layer == 1:
        raise RuntimeError("broken scorer")
    return torch.zeros(view.pattern.shape[0])


def test_an_exception_inside_a_scorer_leaves_no_hook(model: Any, trial: EncodedTrial) -> None:
    for direction in ("raw", "exact"):
        with pytest.raises(RuntimeError, match="broken scorer"):
            forced(model, [trial], methods=[Scorer("mine", breaking, "answer", True, "")], direction=direction)
        assert not has_hooks(model)


def test_a_users_own_hook_survives_success_and_failure(gqa: Any, trial: EncodedTrial) -> None:
    fired = []
    name = "blocks.1.hook_resid_post"
    gqa.add_hook(name, lambda x, hook: fired.append(1))
    try:
        forced(gqa, [trial])
        with pytest.raises(RuntimeError, match="broken scorer"):
            forced(gqa, [trial], methods=[Scorer("mine", breaking, "answer", True, "")])
        assert len(gqa.hook_dict[name].fwd_hooks) == 1
        others = [n for n, point in gqa.hook_dict.items() if point.fwd_hooks and point is not gqa.hook_dict[name]]
        assert others == []
        fired.clear()
        gqa(trial.tokens[None])
        assert len(fired) == 1
    finally:
        gqa.reset_hooks()


def zero_head(head: int) -> Any:
    def zero(z: torch.Tensor, hook: Any) -> torch.Tensor:
        z = z.clone()
        z[:, :, head] = 0
        return z

    return zero


@pytest.fixture
def first_head_ablated(arch: str, model: Any) -> Iterator[tuple[Any, Any]]:
    """(the model with L0H2 zeroed by a hook, the same model with zeroed weights)."""
    hf = zoo.hf_model(arch)
    with torch.no_grad():
        if hasattr(hf, "transformer"):
            width = zoo.D_MODEL // 4
            hf.transformer.h[0].attn.c_proj.weight[2 * width : 3 * width] = 0
        else:
            out = hf.model.layers[0].self_attn.o_proj.weight
            width = out.shape[1] // 4
            out[:, 2 * width : 3 * width] = 0
    from transformer_lens.model_bridge import TransformerBridge

    other = TransformerBridge.boot_transformers(arch, hf_model=hf, tokenizer=zoo.tokenizer(), device="cpu")
    other.enable_compatibility_mode(no_processing=True, disable_warnings=True)
    with hooked(model, [("blocks.0.attn.hook_z", zero_head(2))]):
        yield model, other
    assert not has_hooks(model)


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["raw", "exact"])
def test_a_users_ablation_is_respected(
    first_head_ablated: tuple[Any, Any], trial: EncodedTrial, direction: str
) -> None:
    """Also in the prefill: other heads score as in a model without that head's output weights."""
    hooked_model, zeroed = first_head_ablated
    found = forced(hooked_model, [trial], direction=direction)
    expected = forced(zeroed, [trial], direction=direction)
    others = torch.ones(zoo.LAYERS, 4, dtype=torch.bool)
    others[0, 2] = False
    for method in SCORERS:
        torch.testing.assert_close(found[method].values[others], expected[method].values[others], atol=1e-4, rtol=1e-4)


def spread_evenly(pattern: torch.Tensor, hook: Any) -> torch.Tensor:
    return (pattern > 0).float() / (pattern > 0).sum(-1, keepdim=True)


def test_a_hook_on_attention_turns_the_fast_path_off(gqa: Any, trial: EncodedTrial) -> None:
    """A pattern hook must fire in the prefill as well, where sdpa has no pattern to show it."""
    rows = []
    hooks = [("blocks.0.attn.hook_pattern", lambda p, hook: rows.append(p.shape[2]))]
    with hooked(gqa, [*hooks, ("blocks.0.attn.hook_pattern", spread_evenly)]):
        with fast_attention(gqa):
            assert "forward" not in vars(gqa.blocks[0].attn)
        even = forced(gqa, [trial], methods="locos")["locos"].values
        assert sum(rows) == len(trial) + 2  # Every row once: the prompt, and two of three answer tokens.
        whole = forced(gqa, [trial], methods="locos", chunk=1)["locos"].values
    torch.testing.assert_close(even, whole, atol=1e-5, rtol=1e-4)
    assert not torch.isclose(even, forced(gqa, [trial], methods="locos")["locos"].values, rtol=1e-3).any()
    with fast_attention(gqa):
        assert "forward" in vars(gqa.blocks[0].attn)


def test_the_ablation_above_changes_something(gqa: Any, trial: EncodedTrial) -> None:
    plain = forced(gqa, [trial], methods="locos")["locos"].values[1:]
    with hooked(gqa, [("blocks.0.attn.hook_z", zero_head(2))]):
        ablated = forced(gqa, [trial], methods="locos")["locos"].values[1:]
    assert not torch.isclose(plain, ablated, rtol=1e-3).any()


# Numbers


@pytest.mark.parametrize("arch", ["gpt2", "llama-gqa", "gemma3"])
def test_a_bfloat16_model_gives_finite_float32_scores_close_to_float32s(arch: str) -> None:
    trials = trials_of_all_lengths()
    full, half = forced(tiny(arch), trials), forced(zoo.bridge(arch, dtype=torch.bfloat16), trials)
    for method in ("locos", "dla", "attention_spatial", "headkv"):
        found = half[method].per_trial
        assert found.dtype == torch.float32
        assert torch.isfinite(found).all()
        # bfloat16 has 8 bits; after three layers a few percent of the largest score are left to rounding.
        expected = full[method].per_trial
        torch.testing.assert_close(found, expected, rtol=0, atol=0.1 * float(expected.abs().max()))
        assert float((found - expected).abs().mean()) < 0.01 * float(expected.abs().max())
    rounded = half["locos"].per_trial.to(torch.bfloat16).float()
    assert (rounded != half["locos"].per_trial).float().mean() > 0.9  # Summed in float32, not rounded at the end.
    assert half["locos"].model.dtype == "torch.bfloat16"


def test_a_score_that_is_not_finite_is_no_result(gqa: Any) -> None:
    def nan_once(view: Any) -> torch.Tensor:
        out = SCORERS["locos"].score(view)
        return out * float("nan") if len(view.tokens) == 17 + 2 and view.layer == 2 else out

    mine = Scorer("mine", nan_once, "answer", True, "")
    with pytest.warns(
        UserWarning, match="scoring: 1 of 5 failed; the first: ValueError: trial random-1: mine is not finite"
    ):
        scores = forced(gqa, trials_of_all_lengths(), methods=[mine, "headkv"])
    assert scores["mine"].outcomes == {"passed": 4, "error": 1}
    assert scores["mine"].trial_ids == ("random-0", "random-2", "random-3", "random-4")


# Outcomes


def text_trial(name: str, answer: str) -> EncodedTrial:
    base = random_trial(seed=sum(map(ord, name)))
    gold = zoo.tokenizer()(answer, add_special_tokens=False).input_ids
    return EncodedTrial(base.tokens, base.needle, answer, gold, name)


SAID = {"right": "it is red", "wrong": "it is blue", "other words": "dogs run", "broken": ""}
ASKED = [
    text_trial("right", "red"),
    text_trial("wrong", "red"),
    text_trial("other words", "running dog"),
    text_trial("broken", "red"),
]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model says what SAID says for each trial, and breaks on one."""

    def greedy(model: Any, first: Any, cache: Any, pads: Any, max_new_tokens: int, **_: Any) -> list[list[int]]:
        from lens_heads.model.forward import advance

        (trial,) = [t for t in ASKED if torch.equal(t.tokens[-first.shape[1] :], first[0])]
        if trial.id == "broken":
            raise RuntimeError("out of memory")
        said = zoo.tokenizer()(SAID[trial.id], add_special_tokens=False).input_ids
        for fed in (first, *torch.tensor([said[:-1]]).split(1, 1)):
            advance(model, fed, cache, pads)
        return [said]

    monkeypatch.setattr("lens_heads.ranking.one_pass.batch.greedy", greedy)


def test_every_outcome_is_counted_and_listed(gqa: Any, scripted: None) -> None:
    with pytest.warns(UserWarning, match="1 of 4 failed; the first, broken: RuntimeError: out of memory"):
        scores = score(gqa, ASKED)
    for found in scores.values():
        assert found.outcomes == {"passed": 1, "gate_failed": 1, "no_answer_step": 1, "error": 1}
    listed = {record["id"]: record for record in scores["locos"].meta["trials"]}
    assert [listed[name]["outcome"] for name in SAID] == ["passed", "gate_failed", "no_answer_step", "error"]
    assert listed["right"]["text"] == "it is red"
    assert listed["right"]["answer_steps"] == [6, 7, 8]
    assert listed["broken"]["error"] == "RuntimeError: out of memory"


def test_gated_methods_count_passed_trials_and_headkv_counts_all_that_ran(gqa: Any, scripted: None) -> None:
    with pytest.warns(UserWarning, match="failed"):
        scores = score(gqa, ASKED)
    for method in ("locos", "dla", "copy", "contrastive", "attention_spatial", "attention_mass"):
        assert scores[method].trial_ids == ("right",)
    assert scores["headkv"].trial_ids == ("right", "wrong", "other words")
    # A trial that fails contributes nothing, not a zero.
    assert torch.equal(scores["locos"].values, scores["locos"].per_trial[0])
    # The gate does not change what headkv sees.
    alone = forced(gqa, ASKED[:3], methods="headkv")
    torch.testing.assert_close(scores["headkv"].per_trial, alone["headkv"].per_trial, atol=1e-6, rtol=1e-5)


def test_the_copy_score_counts_over_all_steps_and_locos_over_answer_steps(gqa: Any, scripted: None) -> None:
    rows: dict[str, int] = {}

    def count(kind: str) -> Any:
        def see(view: Any) -> torch.Tensor:
            rows[kind] = len(view.row_positions)
            return torch.zeros(view.pattern.shape[0])

        return see

    mine = [Scorer(kind, count(kind), kind, True, "") for kind in ("answer", "generated", "prompt")]  # type: ignore[arg-type]
    score(gqa, ASKED[:1], methods=mine)
    assert rows == {"answer": 3, "generated": 9, "prompt": 8}


@pytest.mark.slow
def test_errors_are_tried_again_by_the_next_run(gqa: Any, scripted: None, tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.warns(UserWarning, match="failed"):
        score(gqa, ASKED, out=tmp_path / "run")
    assert len(shards(tmp_path / "run")) == 3
    monkeypatch.undo()  # From here on the model speaks for itself.
    again = score(gqa, ASKED, out=tmp_path / "run", methods=list(SCORERS))
    assert again["locos"].outcomes == {"passed": 1, "gate_failed": 2, "no_answer_step": 1}
    assert again["headkv"].trial_ids == tuple(SAID)
    assert len(shards(tmp_path / "run")) == 4


def test_no_trial_that_counts_is_an_error_with_the_counts(gqa: Any, scripted: None) -> None:
    with pytest.raises(
        ValueError, match=r"no trial counts for locos, copy: of 2 trials 1 gate_failed, 1 no_answer_step; use"
    ):
        score(gqa, ASKED[1:3], methods=["locos", "copy"])


def test_a_method_without_trials_is_left_out_with_a_warning(gqa: Any, scripted: None) -> None:
    with pytest.warns(UserWarning, match=r"no trial counts for locos \(1 gate_failed\)"):
        scores = score(gqa, ASKED[1:2], methods=["locos", "headkv"])
    assert list(scores) == ["headkv"]


def test_when_every_trial_fails_the_error_itself_is_raised(gqa: Any, scripted: None) -> None:
    with pytest.raises(RuntimeError, match="out of memory"):
        score(gqa, ASKED[3:])


def test_the_meta_says_what_was_run_and_is_json(gqa: Any, trial: EncodedTrial) -> None:
    found = forced(gqa, [trial], methods="locos")["locos"]
    meta = found.meta
    assert json.loads(json.dumps(meta)) == meta
    assert (found.model.name, found.method, found.settings["direction"]) == ("llama-gqa", "locos", "raw")
    assert (found.model.dtype, len(found.model.weights), found.signed) == ("torch.float32", 16, True)
    assert found.made_on == made_on([trial])
    assert (meta["teacher_forced"], meta["n_trials"], found.outcomes) == (True, 1, {"passed": 1})
    assert "2607.01002" in meta["paper"]


# What is refused


def refused(match: str, model: Any, trials: Any, error: type[Exception] = ValueError, **options: Any) -> None:
    with pytest.raises(error, match=match):
        forced(model, trials, **options)


def test_no_trials(gqa: Any) -> None:
    refused("there are no trials: pass at least one", gqa, [])
    refused("trials is an iterator with nothing in it", gqa, iter(()))


@pytest.mark.parametrize("needle", [(20, 25), (-1, 3), (5, 5), (9, 7), (24, 26)])
def test_a_needle_outside_the_prompt(needle: tuple[int, int]) -> None:
    s, e = needle
    with pytest.raises(ValueError, match=rf"trial t: the needle \[{s}, {e}\) lies outside the prompt of 24 tokens"):
        EncodedTrial(torch.arange(24), needle, "x", torch.tensor([5]), "t")


def test_an_answer_or_a_prompt_of_no_tokens() -> None:
    with pytest.raises(ValueError, match=r"trial t: the answer '-' tokenizes to nothing"):
        EncodedTrial(torch.arange(24), (1, 2), "-", [], "t")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="trial t: the prompt has no tokens"):
        EncodedTrial([], None, "x", [1], "t")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="trial t: the answer is empty"):
        Trial("t", "q", "  ")


@pytest.mark.parametrize("tokens", [[[1, 2], [3, 4]], [1.5, 2.0], torch.tensor([True, False])])
def test_tokens_that_are_no_list_of_ids(tokens: Any) -> None:
    with pytest.raises(ValueError, match="trial t: tokens must be a list of token ids"):
        EncodedTrial(tokens, None, "x", [1], "t")  # type: ignore[arg-type]


def test_a_prompt_longer_than_the_context_window(gqa: Any) -> None:
    long = random_trial(0, 510, (7, 11))
    refused(r"trial random-0: 510 prompt tokens and 3 to come exceed the context window of 512 tokens", gqa, [long])
    fits = random_trial(1, 509, (7, 11))
    assert forced(gqa, [fits], methods="headkv")["headkv"].trial_ids == ("random-1",)
    with pytest.raises(ValueError, match="509 prompt tokens and 4 to come exceed"):
        score(gqa, [fits], max_new_tokens=4)


def test_an_unknown_method_suggests_the_nearest(gqa: Any, trial: EncodedTrial) -> None:
    refused("unknown method 'loco': did you mean 'locos'\\? the methods are locos, ", gqa, [trial], methods="loco")
    refused("did you mean 'attention_spatial'", gqa, [trial], methods=["locos", "spatial_attention"])
    refused("unknown method 'zzz': the methods are", gqa, [trial], methods="zzz")
    refused("no methods given", gqa, [trial], methods=[])


def test_two_trials_of_one_id(gqa: Any, trial: EncodedTrial) -> None:
    refused("two trials have the id 'random-0'", gqa, [trial, random_trial(1), trial])


def test_a_trial_without_a_needle_or_with_nothing_else(gqa: Any) -> None:
    tokens, gold = torch.arange(5, 15), torch.tensor([5])
    refused("trial bare has no needle", gqa, [EncodedTrial(tokens, None, "x", gold, "bare")])
    refused("trial all: the needle is the whole prompt", gqa, [EncodedTrial(tokens, (0, 10), "x", gold, "all")])


@pytest.mark.parametrize("arch", ["gpt2", "llama-gqa"])
def test_folded_and_centred_weights(arch: str, trial: EncodedTrial) -> None:
    from transformer_lens.model_bridge import TransformerBridge

    processed = TransformerBridge.boot_transformers(
        arch, hf_model=zoo.hf_model(arch), tokenizer=zoo.tokenizer(), device="cpu"
    )
    processed.enable_compatibility_mode(disable_warnings=True)
    refused(rf"{arch} has processed weights.*lens_heads\.load_model", processed, [trial])


def test_centred_weights_are_noticed_by_their_values(trial: EncodedTrial) -> None:
    """However they came to be so: nothing in the config says it."""
    model = zoo.bridge("llama-gqa")
    with torch.no_grad():
        model.original_model.lm_head.weight.sub_(model.original_model.lm_head.weight.mean(0))
    refused(r"processed weights \(W_U centered\)", model, [trial])


@pytest.mark.parametrize("what", ["hf", "module", "text"])
def test_what_is_no_transformerlens_model(what: str, trial: EncodedTrial) -> None:
    other = {"hf": zoo.hf_model("llama-gqa"), "module": torch.nn.Linear(2, 2), "text": "gpt2"}[what]
    name = type(other).__name__
    refused(rf"{name} is not a TransformerLens model: load it with lens_heads\.load_model", other, [trial], TypeError)


def test_a_batch_size_of_nothing(gqa: Any, trial: EncodedTrial) -> None:
    refused("batch_size=0", gqa, [trial], batch_size=0)


def test_what_is_refused_leaves_no_run_folder(gqa: Any, trial: EncodedTrial, tmp_path: Path) -> None:
    refused("two trials", gqa, [trial, trial], out=tmp_path / "run")
    refused("unknown method", gqa, [trial], methods="loco", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("part", ["q_proj", "v_proj", "down_proj", "embed_tokens", "norm", "input_layernorm"])
def test_a_run_folder_knows_other_weights_of_any_kind(tmp_path: Path, part: str) -> None:
    trials = trials_of_all_lengths()[:2]
    model = zoo.bridge("llama-gqa")
    forced(model, trials, methods=["locos"], out=tmp_path / "run")
    with torch.no_grad():
        for name, parameter in model.original_model.named_parameters():
            if part in name:
                parameter.add_(0.01)
    with pytest.raises(ValueError, match="weights:"):
        forced(model, trials, methods=["locos"], out=tmp_path / "run")


def test_a_run_folder_knows_another_answer_and_another_scorer_of_the_same_name(gqa: Any, tmp_path: Path) -> None:
    (trial,) = trials_of_all_lengths()[:1]
    forced(gqa, [trial], methods=["locos"], out=tmp_path / "run")
    other = EncodedTrial(trial.tokens, trial.needle, "another", trial.answer_tokens, trial.id)
    with pytest.raises(ValueError, match="trials:"):
        forced(gqa, [other], methods=["locos"], out=tmp_path / "run")
    mine = Scorer("locos", lambda view: view.phi.sum(-1).mean(-1), "answer", True, "")
    with pytest.raises(ValueError, match="methods:"):
        forced(gqa, [trial], methods=[mine], out=tmp_path / "run")


def test_a_hooked_model_is_not_scored_into_a_run_folder(gqa: Any, tmp_path: Path) -> None:
    with lh.ablate(gqa, "L1H1", kind="zero"):
        with pytest.raises(ValueError, match="llama-gqa has hooks attached"):
            forced(gqa, trials_of_all_lengths()[:1], methods=["locos"], out=tmp_path / "run")
        forced(gqa, trials_of_all_lengths()[:1], methods=["locos"])


@pytest.mark.slow
@pytest.mark.parametrize("arch", zoo.ARCHITECTURES)
def test_half_precision_models_can_all_be_scored(arch: str) -> None:
    trial = trials_of_all_lengths()[:1]
    half = forced(zoo.bridge(arch, dtype=torch.bfloat16), trial, methods=["locos"])["locos"].values
    whole = forced(zoo.bridge(arch), trial, methods=["locos"])["locos"].values
    assert float((half - whole).abs().max()) < 0.06 * float(whole.abs().max())
