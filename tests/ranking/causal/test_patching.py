"""Fast exact patching against a plain loop of full forwards, identities that must hold, planted ground truth."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import lens_heads as lh
from lens_heads.answering.pair_runs import PairRuns
from lens_heads.model.forward import left_pad
from lens_heads.model.geometry import head_geometry
from lens_heads.model.hooks import has_hooks, hooked
from lens_heads.trials.pairs import TokenPair, make_pairs
from tests import handmade, planted, zoo
from tests.conftest import random_trial, tiny
from tests.pairs import trial_of, trials_of
from tests.ranking.causal import byhand


def random_pair(seed: int = 1, n: int = 24, answer: int = 3, changed: slice = slice(6, 10)) -> TokenPair:
    generator = torch.Generator().manual_seed(seed)
    clean = torch.randint(3, zoo.VOCAB, (n,), generator=generator)
    corrupt = clean.clone()
    corrupt[changed] = torch.randint(3, zoo.VOCAB, (len(corrupt[changed]),), generator=generator)
    return TokenPair(clean, corrupt, (n - answer, n), f"random-{seed}")


def scores(model: Any, pair: TokenPair, **options: Any) -> Tensor:
    return lh.patch_heads(model, [trial_of(pair)], progress=False, **options).per_trial[0]


def same(found: Tensor, wanted: Tensor, tolerance: float = 2e-5) -> None:
    torch.testing.assert_close(found, wanted, atol=tolerance, rtol=1e-4)


@pytest.mark.parametrize("positions", ["answer", "all"])
def test_every_head_equals_a_plain_loop_with_forward_hooks(arch: str, model: Any, positions: Any) -> None:
    for pair in (random_pair(1), random_pair(2, answer=1), random_pair(3, changed=slice(0, 1))):
        wanted = byhand.patched_heads(zoo.hf_model(arch), pair, positions)
        assert wanted.abs().max() > 1e-3
        same(scores(model, pair, positions=positions), wanted)


def test_the_logit_difference_is_against_the_corrupt_runs_own_favourite(arch: str, model: Any) -> None:
    pair, hf = random_pair(4), zoo.hf_model(arch)
    row = pair.answer[0] - 1
    favourite = int(handmade.logits(hf, pair.corrupt)[row].argmax())

    def difference(logits: Tensor, pair: TokenPair) -> float:
        return float(logits[row, int(pair.gold[0])] - logits[row, favourite])

    wanted = byhand.patched_heads(hf, pair, "all", difference)
    same(scores(model, pair, metric="first_token_logit_diff", positions="all"), wanted)


def test_a_broken_patch_is_caught() -> None:
    """The parity test can fail: z of the neighbouring head is far from right."""
    pair = random_pair(1)
    wanted = byhand.patched_heads(zoo.hf_model("llama-gqa"), pair, "all")
    found = scores(tiny("llama-gqa"), pair, positions="all")
    assert (found.roll(1, 1) - wanted).abs().max() > 0.1


@pytest.mark.parametrize("heads_per_pass", [1, 3])
def test_how_many_heads_go_side_by_side_changes_nothing(gqa: Any, heads_per_pass: int) -> None:
    pair = random_pair(5)
    same(scores(gqa, pair, positions="all", heads_per_pass=heads_per_pass), scores(gqa, pair, positions="all"))


def test_long_runs_read_in_chunks_are_the_same(gqa: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = random_pair(6, n=60, changed=slice(5, 50))
    whole = scores(gqa, pair, positions="all")
    monkeypatch.setattr("lens_heads.answering.pair_runs.CHUNK", 7)
    same(scores(gqa, pair, positions="all"), whole)


def test_patching_clean_into_clean_changes_nothing(model: Any) -> None:
    pair = random_pair()
    twice = TokenPair(pair.clean, pair.clean, pair.answer, "same")
    for positions in ("answer", "all"):
        assert scores(model, twice, positions=positions).abs().max() < 1e-5


@pytest.mark.parametrize("layer", [0, 2])
def test_all_heads_of_a_layer_reproduce_its_clean_attention_output_exactly(model: Any, layer: int) -> None:
    pair, shape, name = random_pair(), head_geometry(model), f"blocks.{layer}.hook_attn_out"
    heads = [(layer, head) for head in range(shape.n_heads)]
    seen: list[Tensor] = []
    see = [(name, lambda x, hook: seen.append(x.clone()))]
    with torch.no_grad(), hooked(model, see):
        model(pair.clean[None, :-1])
        with lh.patch(model, heads, trial_of(pair), positions="all"):
            model(pair.corrupt[None, :-1])
        model(pair.corrupt[None, :-1])
    clean, _, patched, corrupt = seen  # The second is the clean run that `patch` makes.
    assert torch.equal(patched, clean)
    assert layer == 0 or (corrupt - clean).abs().max() > 1e-3


def test_patch_is_the_same_intervention_as_patch_heads(model: Any) -> None:
    pair, shape = random_pair(), head_geometry(model)

    def metric(tokens: Tensor) -> float:
        with torch.no_grad():
            return byhand.answer_logprob(model(tokens[None])[0], pair)

    for positions in ("answer", "all"):
        found = scores(model, pair, positions=positions)
        for head in [(0, 1), (2, shape.n_heads - 1)]:
            with lh.patch(model, [head], trial_of(pair), positions=positions):  # type: ignore[arg-type]
                patched = metric(pair.corrupt)
            assert patched - metric(pair.corrupt) == pytest.approx(float(found[head]), abs=2e-5)
    assert not has_hooks(model)


def test_patch_knows_positions_in_a_batch_with_left_padding(gqa: Any) -> None:
    pair = random_pair()
    row = pair.corrupt[:-1]
    alone, padded = left_pad([row], "cpu"), left_pad([row, torch.randint(3, 200, (40,))], "cpu")
    with torch.no_grad(), lh.patch(gqa, ["L0H0", "L1H2"], trial_of(pair), positions="all"):
        one = gqa(alone[0])[0]
        mask = (torch.arange(40) >= padded[1][:, None]).long()
        two = gqa(padded[0], attention_mask=mask)[0]
    torch.testing.assert_close(two[-len(row) :], one, atol=1e-4, rtol=1e-4)


def test_patch_takes_trials_and_leaves_nothing_behind_on_an_exception(gqa: Any) -> None:
    hooked_inside: list[bool] = []

    def fail() -> None:
        hooked_inside.append(has_hooks(gqa))
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"), lh.patch(gqa, "L1H1", random_trial()):
        fail()
    assert hooked_inside == [True]
    assert not has_hooks(gqa)


def test_cri_finds_the_planted_heads_and_only_them() -> None:
    model, clean = planted.model(), planted.trials(8)
    found = lh.patch_heads(model, clean, positions="all", metric="logprob", progress=False)
    assert set(found.top(2)) == {planted.COPIER, planted.WRITER}
    assert found.bottom(1) == [planted.SUPPRESSOR]
    named = {planted.COPIER, planted.WRITER, planted.SUPPRESSOR}
    rest = [abs(found[head]) for head in found.ranking() if head not in named]
    assert max(rest) < 0.1 * min(abs(found[head]) for head in named)  # The decoy writes nothing.
    at_answer = lh.patch_heads(model, clean, positions="answer", progress=False)
    for head in named:  # Planted heads read out at the last row only.
        assert at_answer[head] == pytest.approx(found[head], abs=1e-4)


def test_results_are_stored_and_read_again(gqa: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = trials_of([random_pair(1), random_pair(2)])
    first = lh.patch_heads(gqa, pairs, progress=False, out=tmp_path / "run")
    monkeypatch.setattr("lens_heads.ranking.causal.patching.run_pair", None)  # Nothing may be run again.
    again = lh.patch_heads(gqa, pairs, progress=False, out=tmp_path / "run")
    assert torch.equal(first.per_trial, again.per_trial)
    loaded = lh.HeadScores.load(tmp_path / "run" / "patching_answer.json")
    torch.testing.assert_close(loaded.values, first.values)
    with pytest.raises(ValueError, match="positions: answer in the folder, all now"):
        lh.patch_heads(gqa, pairs, positions="all", progress=False, out=tmp_path / "run")


def test_the_record_says_what_the_runs_were_like(gqa: Any) -> None:
    pair = random_pair()
    found = lh.patch_heads(gqa, [trial_of(pair)], progress=False)
    hf = zoo.hf_model("llama-gqa")
    (record,) = found.meta["trials"]
    assert record["clean"] == pytest.approx(byhand.answer_logprob(handmade.logits(hf, pair.clean), pair), abs=1e-4)
    assert record["corrupt"] == pytest.approx(byhand.answer_logprob(handmade.logits(hf, pair.corrupt), pair), abs=1e-4)


def favourite_pair(model: Any) -> TokenPair:
    """A pair whose corrupt run already likes the answer best."""
    pair = random_pair(7, answer=1)
    with torch.no_grad():
        best = int(model(pair.corrupt[None, :-1])[0, -1].argmax())
    clean, corrupt = pair.clean.clone(), pair.corrupt.clone()
    clean[-1] = corrupt[-1] = best
    return TokenPair(clean, corrupt, pair.answer, "favourite")


def test_an_answer_the_corrupt_run_prefers_is_left_out_or_refused(gqa: Any) -> None:
    bad, fine = trials_of([favourite_pair(gqa), random_pair(1)])
    with pytest.raises(ValueError, match="pair favourite: the corrupt run ranks the answer's own first token"):
        lh.patch_heads(gqa, [bad], metric="first_token_logit_diff", progress=False)
    with pytest.warns(UserWarning, match="1 of 2 failed; the first: ValueError: pair favourite"):
        found = lh.patch_heads(gqa, [bad, fine], metric="first_token_logit_diff", progress=False)
    assert found.trial_ids == (fine.id,)
    assert not has_hooks(gqa)
    assert lh.patch_heads(gqa, [bad], progress=False).trial_ids == ("favourite",)  # Fine for the log-probability.


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"metric": lambda logits, gold: logits[:, 0]},
            ValueError,
            r"the metric returned shape \[2, 256\].*shape \[2\]",
        ),
        ({"metric": lambda logits, gold: 1.0}, ValueError, "the metric returned float"),
        ({"metric": lambda logits, gold: logits[:, 0, 0] * torch.nan}, ValueError, "pair random-1: the metric is nan"),
        ({"metric": "logit"}, ValueError, "metric='logit': use logprob, answer_logit, first_token_logit_diff"),
        ({"metric": 3}, TypeError, "metric=3: must be a name or a function"),
        ({"positions": "last"}, ValueError, "positions='last': use 'answer'"),
        ({"heads_per_pass": 0}, ValueError, "heads_per_pass=0: must be a positive integer"),
    ],
)
def test_bad_input_ends_in_one_line_and_no_hook(gqa: Any, options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        lh.patch_heads(gqa, [trial_of(random_pair())], progress=False, **options)
    assert not has_hooks(gqa)
    assert all("forward" not in vars(block) for block in gqa.blocks)


def test_heads_outside_the_model_and_foreign_objects_are_refused(gqa: Any) -> None:
    with pytest.raises(ValueError, match="head L7H0 does not exist"), lh.patch(gqa, "L7H0", trial_of(random_pair())):
        pass
    with pytest.raises(TypeError, match="is not a TransformerLens model"):
        lh.patch_heads(object(), [trial_of(random_pair())], progress=False)
    with pytest.raises(TypeError, match="trials='L1H1': must be a list of Trials or EncodedTrials"):
        lh.patch_heads(gqa, "L1H1", progress=False)  # type: ignore[arg-type]


def test_a_run_folder_refuses_a_hooked_model(gqa: Any, tmp_path: Any) -> None:
    with lh.ablate(gqa, "L0H0", kind="zero"), pytest.raises(ValueError, match="has hooks attached"):
        lh.patch_heads(gqa, [trial_of(random_pair())], progress=False, out=tmp_path / "run")


def test_patching_works_under_an_ablation(gqa: Any) -> None:
    """What is hooked on stays on: an ablated head cannot give anything back."""
    with lh.ablate(gqa, "L1H1", kind="zero"):
        found = scores(gqa, random_pair(), positions="all")
    assert float(found[1, 1]) == pytest.approx(0, abs=1e-6)
    assert found.abs().max() > 1e-2


def test_trials_become_pairs_by_themselves(gqa: Any) -> None:
    trials = [random_trial(0), random_trial(1)]
    direct = lh.patch_heads(gqa, make_pairs(trials, gqa.tokenizer, head_geometry(gqa)), progress=False)
    found = lh.patch_heads(gqa, trials, progress=False)
    assert torch.equal(direct.per_trial, found.per_trial)
    assert found.settings["corruption"] == "remove"


def test_where_memory_runs_out_fewer_heads_run_side_by_side(gqa: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, sizes, rerun = random_pair(), [], PairRuns.rerun
    whole = lh.patch_heads(gqa, [trial_of(pair)], progress=False)

    def narrow(self: PairRuns, base: int, begins: Any, *rest: Any) -> Any:
        sizes.append(len(begins))
        if len(begins) > 5:
            raise torch.OutOfMemoryError("out of memory")
        return rerun(self, base, begins, *rest)

    monkeypatch.setattr(PairRuns, "rerun", narrow)
    found = lh.patch_heads(gqa, [trial_of(pair)], progress=False)
    torch.testing.assert_close(found.values, whole.values, atol=1e-5, rtol=1e-4)
    assert sizes == [12, 6, 3, 3, 3, 3]
