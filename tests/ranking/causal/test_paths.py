"""Path patching against a plain loop of two full forwards per path, and against TransformerLens's direct paths."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import lens_heads as lh
from lens_heads.answering.patch_metrics import answer_logprob
from lens_heads.model.hooks import has_hooks
from lens_heads.trials.pairs import TokenPair
from tests import handmade, planted, zoo
from tests.conftest import tiny
from tests.pairs import trial_of
from tests.ranking.causal import byhand
from tests.ranking.causal.test_patching import random_pair

try:
    from transformer_lens.patching import get_act_patch_direct_path
except ImportError:
    get_act_patch_direct_path = None


def scores(model: Any, senders: Any, receivers: Any, pair: TokenPair, **options: Any) -> Tensor:
    return lh.path_patch(model, [trial_of(pair)], senders, receivers, progress=False, **options).per_trial[0]


def wanted(arch: str, pair: TokenPair, receivers: list[tuple[int, int]], component: str, base: str) -> Tensor:
    hf = zoo.hf_model(arch)
    runs, sign = ((pair.clean, pair.corrupt), -1) if base == "clean" else ((pair.corrupt, pair.clean), 1)
    start = byhand.answer_logprob(handmade.logits(hf, runs[0]), pair)
    last = max((layer for layer, _ in receivers), default=3)
    found = torch.zeros(3, hf.config.num_attention_heads)
    for layer in range(last):
        for head in range(found.shape[1]):
            found[layer, head] = sign * (byhand.path(hf, pair, (layer, head), receivers, component, *runs) - start)
    return found


@pytest.mark.parametrize("component", ["q", "k", "v"])
def test_paths_into_heads_equal_a_plain_loop(arch: str, model: Any, component: Any) -> None:
    pair, receivers = random_pair(), [(2, 1), (1, 3)]
    for base in ("clean", "corrupt"):
        found = scores(model, None, receivers, pair, component=component, base=base)
        expected = wanted(arch, pair, receivers, component, base)
        assert expected.abs().max() > 1e-3
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)


def test_paths_into_the_logits_equal_a_plain_loop(arch: str, model: Any) -> None:
    pair = random_pair()
    for base in ("clean", "corrupt"):
        found = scores(model, None, "logits", pair, base=base)
        torch.testing.assert_close(found, wanted(arch, pair, [], "q", base), atol=2e-5, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(
    get_act_patch_direct_path is None, reason="TransformerLens 3.9 patches behind the norm, not exactly"
)
@pytest.mark.parametrize(("arch", "component"), [("gpt2", "q"), ("gpt2", "k"), ("gpt2", "v"), ("llama-gqa", "q")])
def test_direct_edges_equal_transformer_lens(arch: str, component: Any) -> None:
    """With MLPs frozen only the edge of the residual stream is left: what get_act_patch_direct_path patches."""
    assert get_act_patch_direct_path is not None
    model, pair, sender = zoo.bridge(arch), random_pair(), (0, 2)
    caches = [model.run_with_cache(tokens[None, :-1])[1] for tokens in (pair.clean, pair.corrupt)]
    rows = slice(pair.answer[0] - 1, pair.answer[1] - 1)

    def metric(logits: Tensor) -> Tensor:
        return answer_logprob(logits[:, rows].float(), pair.gold)[0]

    try:
        theirs = get_act_patch_direct_path(
            model, pair.corrupt[None, :-1], *caches, metric, *sender, component=component, verbose=False
        )
    except NotImplementedError as error:
        pytest.skip(f"this TransformerLens has no fork before Q, K, V here: {error}")
    corrupt = float(metric(model(pair.corrupt[None, :-1])))
    for head in range(4):
        found = scores(model, [sender], [(2, head)], pair, component=component, base="corrupt", freeze_mlps=True)
        assert float(found[sender]) == pytest.approx(float(theirs[2, head]) - corrupt, abs=3e-5)


def test_only_senders_score_and_each_on_its_own(gqa: Any) -> None:
    pair = random_pair()
    every = scores(gqa, None, ["L2H0"], pair, component="v")
    some = scores(gqa, ["L0H1", "L1H2"], ["L2H0"], pair, component="v")
    assert some.nonzero().tolist() == [[0, 1], [1, 2]]
    torch.testing.assert_close(some[[0, 1], [1, 2]], every[[0, 1], [1, 2]], atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_planted_heads_tell_the_logits_and_nobody_else() -> None:
    model, trials = planted.model(), planted.trials(4)
    direct = lh.path_patch(model, trials, None, "logits", progress=False)
    assert set(direct.top(2)) == {planted.COPIER, planted.WRITER}
    assert direct.bottom(1) == [planted.SUPPRESSOR]
    indirect = lh.path_patch(model, trials, None, [planted.WRITER], progress=False)
    assert indirect.values.abs().max() < 0.01 * direct.values.abs().max()


def test_the_result_says_what_the_path_was(gqa: Any) -> None:
    found = lh.path_patch(gqa, [trial_of(random_pair())], "L0H1", ["L2H0"], component="k", progress=False)
    assert {key: found.meta[key] for key in ("senders", "receivers", "component", "base_run", "freeze_mlps")} == {
        "senders": ["L0H1"],
        "receivers": ["L2H0"],
        "component": "k",
        "base_run": "clean",
        "freeze_mlps": False,
    }


@pytest.mark.parametrize(
    ("senders", "receivers", "options", "message"),
    [
        (["L2H0"], ["L2H1"], {}, "sender L2H0 is not in a layer below a receiver"),
        (None, ["L0H1"], {}, "no head is in a layer below a receiver"),
        (None, [], {}, "there are no receivers: give heads, or 'logits'"),
        (None, ["L5H1"], {}, "head L5H1 does not exist"),
        (["L0H9"], "logits", {}, "head L0H9 does not exist"),
        (None, "logits", {"component": "z"}, "component='z': must be 'q', 'k' or 'v'"),
        (None, "logits", {"base": "dirty"}, "base='dirty': use 'clean'"),
    ],
)
def test_bad_input_is_refused(senders: Any, receivers: Any, options: Any, message: str) -> None:
    model = tiny("llama-gqa")
    with pytest.raises(ValueError, match=message):
        scores(model, senders, receivers, random_pair(), **options)
    assert not has_hooks(model)


def test_how_many_senders_go_side_by_side_changes_nothing(gqa: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = random_pair()
    whole = scores(gqa, None, ["L2H0"], pair, component="v")
    monkeypatch.setattr("lens_heads.interventions.replay.ROWS", {"cpu": 1})
    torch.testing.assert_close(scores(gqa, None, ["L2H0"], pair, component="v"), whole, atol=1e-5, rtol=1e-4)
