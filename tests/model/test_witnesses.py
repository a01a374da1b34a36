"""Families whose attention differs from the usual, against plain transformers: what heads write, ablations, edits of patterns."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

import lens_heads as lh
from lens_heads.model.hooks import has_hooks, recording
from lens_heads.model.identity import changed_by
from lens_heads.model.support import joins, support
from lens_heads.ranking.causal.knockout import kl
from lens_heads.trials.pairs import TokenPair
from tests import witnesses, zoo
from tests.conftest import random_trial
from tests.pairs import trial_of
from tests.witnesses import FAMILIES, GATES, HEADS

DELEGATED = ("opt", "gptj", "gpt_neo", "xglm", "llama4", "afmoe", "laguna")
TRIAL = random_trial(3, n=30)
TOKENS = torch.cat([TRIAL.tokens, TRIAL.answer_tokens[:-1]])
AT = (1, 2)
"""A head."""


@pytest.fixture(params=list(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    return request.param


def logprob(logits: Tensor) -> float:
    rows = logits[-len(TRIAL.answer_tokens) :].log_softmax(-1)
    return float(rows.gather(-1, TRIAL.answer_tokens[:, None]).mean())


def forced(model: Any) -> float:
    return lh.evaluate(model, TRIAL, generate=False, progress=False).mean("logprob")


def test_every_identity_holds(family: str) -> None:
    report = lh.check_model(witnesses.bridged(family))
    assert report.passed, report.frame.to_string()


def test_the_model_is_the_one_of_transformers(family: str) -> None:
    assert forced(witnesses.bridged(family)) == pytest.approx(logprob(witnesses.logits(family, TOKENS)), rel=1e-5)


def test_a_head_without_its_output(family: str) -> None:
    """Zero ablation against a pre-hook on the output projection."""
    with witnesses.before_projection(family, AT[0], _without_head):
        expected = logprob(witnesses.logits(family, TOKENS))
    model = witnesses.bridged(family)
    with lh.ablate(model, [AT], kind="zero"):
        assert forced(model) == pytest.approx(expected, rel=1e-5)
    assert not has_hooks(model)


def test_a_head_with_equal_attention(family: str) -> None:
    """Kind "uniform" against the mean of the values that a row reaches, times the gate where there is one."""
    if not FAMILIES[family].v or family in ("bitnet", "gemma4"):
        pytest.skip("the witness reads values off a projection of their own, and no norm after them")
    module, seen = witnesses.attention(family, AT[0]), {}
    shape = lh.head_geometry(witnesses.bridged(family))  # First: a copy of the plain model would have its hook, too.
    handle = getattr(module, FAMILIES[family].v).register_forward_hook(
        lambda m, args, out: seen.update(v=out, x=args[0])
    )
    places = torch.arange(len(TOKENS))
    reach = shape.reaches(AT[0], places[:, None], places).float()

    def edit(z: Tensor) -> Tensor:
        v = seen["v"].reshape(1, len(TOKENS), -1, z.shape[-1])
        v = v[:, :, AT[1] // (HEADS // v.shape[2])]
        mean = reach @ v[0] / reach.sum(-1, keepdim=True)
        gate = GATES[family](module, seen["x"])[0] if family in GATES else torch.ones(1, HEADS, 1)
        z = z.clone()
        z[0, :, AT[1]] = mean * gate[:, AT[1] if gate.shape[1] == HEADS else 0]
        return z

    with witnesses.before_projection(family, AT[0], edit):
        expected = logprob(witnesses.logits(family, TOKENS))
    handle.remove()
    model = witnesses.bridged(family)
    with lh.ablate(model, [AT], kind="uniform"):
        assert forced(model) == pytest.approx(expected, rel=1e-4)


def test_a_layer_before_the_unembedding_leaves_what_reads_no_unembedding() -> None:
    """ModernBERT's decoder: logits, ablation and attention are transformers'; what is projected onto W_U is refused."""
    model = witnesses.bridged("modernbert")
    assert forced(model) == pytest.approx(logprob(witnesses.logits("modernbert", TOKENS)), rel=1e-5)
    with witnesses.before_projection("modernbert", AT[0], _without_head):
        expected = logprob(witnesses.logits("modernbert", TOKENS))
    with lh.ablate(model, [AT], kind="zero"):
        assert forced(model) == pytest.approx(expected, rel=1e-5)
    lh.score_heads(model, TRIAL, ["attention_mass", "copy", "task_kv"], teacher_forced=True, progress=False)
    for method in ("locos", "locos_exact", "dla"):
        with pytest.raises(
            ValueError, match=f"'{method}' rests on this: the last norm and the unembedding give the logits"
        ):
            lh.score_heads(model, TRIAL, method, progress=False)
    with pytest.raises(ValueError, match="look rests on this: the last norm and the unembedding"):
        lh.look(model, TRIAL, direction="raw")


def test_norms_inside_the_stream_leave_attention() -> None:
    """A BERT decoder: log-probabilities and attention are transformers'; what edits or projects heads is refused."""
    model = witnesses.bridged("bert")
    assert forced(model) == pytest.approx(logprob(witnesses.logits("bert", TOKENS)), rel=1e-5)
    lh.score_heads(model, TRIAL, "attention_mass", teacher_forced=True, progress=False)
    for refused in (
        lambda: lh.score_heads(model, TRIAL, "locos"),
        lambda: lh.look(model, TRIAL),
        lambda: _ablated(model),
    ):
        with pytest.raises(ValueError, match="rests on this: attention and MLP outputs sum to the residual stream"):
            refused()


def _without_head(z: Tensor) -> Tensor:
    z = z.clone()
    z[:, :, AT[1]] = 0
    return z


def _ablated(model: Any) -> None:
    with lh.ablate(model, [AT], kind="zero"):
        forced(model)


@pytest.mark.parametrize("name", DELEGATED)
def test_a_hook_on_the_pattern_fires_before_z(name: str) -> None:
    """And one that changes nothing leaves everything as it was, to the bit."""
    model, order = witnesses.bridged(name), []
    hooks = [f"blocks.1.attn.hook_{part}" for part in ("pattern", "z")]
    with torch.no_grad():
        intact = model(TOKENS[None])
        with recording(model, hooks) as seen:
            again = model(TOKENS[None])
        model.add_hook(hooks[0], lambda x, hook: order.append("pattern"))
        model.add_hook(hooks[1], lambda x, hook: order.append("z"))
        with recording(model, hooks):
            model(TOKENS[None])
    model.reset_hooks()
    assert torch.equal(intact, again)
    assert all(len(values) == 1 for values in seen.values())
    assert order == ["pattern", "z"]


@pytest.mark.parametrize("name", list(FAMILIES))
def test_contributions_of_positions_sum_to_the_heads_write(name: str) -> None:
    """phi over all positions is z W_O u, with the gate or the frozen norm inside; and each is A v W_O u times that."""
    model = witnesses.bridged(name)
    look = lh.look(model, TRIAL, direction="raw")
    step = 1
    token, row = int(look.produced[step]), look.rows[step]
    z: dict[int, Tensor] = {}
    for layer in lh.head_geometry(model).attending:

        def note(given: Tensor, layer: int = layer) -> Tensor:
            z[layer] = given[0, row].detach()
            return given

        with witnesses.before_projection(name, layer, note):
            witnesses.logits(name, TOKENS)
    u = model.W_U[:, token].detach()
    for at, head in enumerate(look.heads):
        expected = z[head.layer][head.head] @ _projection(name, head) @ u
        assert float(look.phi[at, step].float().sum()) == pytest.approx(float(expected), rel=5e-3, abs=5e-3)


def _projection(name: str, head: lh.Head) -> Tensor:
    """W_O of a head by what the plain module makes of the head's own dimensions."""
    module = getattr(witnesses.attention(name, head.layer), FAMILIES[name].o)
    d_head = lh.head_geometry(witnesses.bridged(name)).layers[head.layer].d_head
    with torch.no_grad():
        whole = module(torch.eye(HEADS * d_head)) - module(torch.zeros(1, HEADS * d_head))
    return whole[head.head * d_head : (head.head + 1) * d_head]


@pytest.mark.parametrize("name", ["afmoe", "laguna"])
def test_each_positions_contribution_has_the_gate_of_its_row(name: str) -> None:
    """phi of a gated layer against a loop over positions, with gate and values of the plain model."""
    model, seen = witnesses.bridged(name), {}
    look = lh.look(model, TRIAL, direction="raw")
    step, layer = 0, 1
    row, u = look.rows[step], model.W_U[:, int(look.produced[step])].detach()
    module = witnesses.attention(name, layer)
    handle = module.v_proj.register_forward_hook(lambda m, args, out: seen.update(v=out[0], x=args[0]))
    with torch.no_grad():
        out = witnesses.plain(name)(TOKENS[None], use_cache=False, output_attentions=True)
    handle.remove()
    gate = GATES[name](module, seen["x"])[0].detach()
    v = seen["v"].reshape(len(TOKENS), -1, witnesses.D_HEAD).detach()
    for at, head in enumerate(look.heads):
        if head.layer != layer:
            continue
        g, W_O = gate[row, head.head], _projection(name, head)
        A = out.attentions[layer][0, head.head, row]
        loop = [float(A[j] * (g * v[j, head.head // 2]) @ W_O @ u) for j in range(row + 1)]
        size = max(map(abs, loop))
        assert look.phi[at, step, : row + 1].float().tolist() == pytest.approx(loop, abs=2e-3 * size)


def test_gates_are_found_where_there_are_some() -> None:
    gated = {name: support(witnesses.bridged(name)).gated for name in FAMILIES}
    assert {name for name, layers in gated.items() if layers} == {"afmoe", "laguna", "bitnet", "qwen3_next", "qwen3_5"}


def test_a_gate_that_depends_on_the_pattern_refuses_what_reads_positions_alone() -> None:
    """Any z is some g times A v: only one that an edit of the pattern leaves alone is a gate."""
    module = witnesses.plain("bitnet")
    model = zoo.bridge("bitnet", hf=copy.deepcopy(module))
    for block in model.original_model.model.layers:
        norm = block.self_attn.attn_sub_norm
        vars(norm)["forward"] = lambda z: z * z.abs()
    told = r"\(BitNetForCausalLM\): method 'locos' rests on this: z = pattern @ v"
    with pytest.raises(ValueError, match=told) as refused:
        lh.score_heads(model, TRIAL, "locos", teacher_forced=True, progress=False)
    assert "use methods that read z alone" in str(refused.value)
    lh.score_heads(model, TRIAL, ["dla", "attention_mass"], teacher_forced=True, progress=False)


@pytest.mark.parametrize("name", ["granite", "cohere", "cohere2"])
def test_constants_that_multiply_belong_to_the_exact_reading(name: str) -> None:
    """The sum of all exact contributions of heads moves the logit as much as the heads' writes do, constants included."""
    model = witnesses.bridged(name)
    scores = lh.score_heads(model, TRIAL, ["dla_exact", "dla"], teacher_forced=True, progress=False)
    assert not torch.allclose(scores["dla_exact"].values, scores["dla"].values, rtol=0.2)
    assert support(model, "closing").failed("closing") is None


def a_pair() -> TokenPair:
    return TokenPair(TOKENS, torch.cat([TOKENS[:20].roll(3), TOKENS[20:]]), (len(TOKENS) - 3, len(TOKENS)), "a")


@pytest.mark.parametrize("name", ["mpt", "gpt_bigcode", "xglm"])
def test_models_whose_variants_cannot_join_run_one_at_a_time(name: str) -> None:
    model = witnesses.bridged(name)
    pair = a_pair()
    assert not joins(model)
    many, one = (lh.patch_heads(model, [trial_of(pair)], heads_per_pass=n, progress=False).values for n in (None, 1))
    torch.testing.assert_close(many, one)
    assert float(many.abs().max()) > 0
    cut = lh.knockout_heads(model, TRIAL, kind="uniform", progress=False)
    with torch.no_grad():
        intact = model(TRIAL.tokens[None])[0, -1].float()
        for head in cut.ranking()[:2]:
            with lh.ablate(model, head, kind="uniform"):
                ablated = model(TRIAL.tokens[None])[0, -1].float()
            torch.testing.assert_close(torch.tensor(cut[head]), kl(intact, ablated).cpu().float(), atol=1e-5, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_what_reads_weights_or_queries_runs_or_is_refused_in_a_sentence(name: str) -> None:
    """Errors of other libraries end here: an MLP that does not run alone, a hook that never fires, a gradient that stops."""
    model, pair = witnesses.bridged(name), trial_of(a_pair())
    cards = lh.describe(model, text=["a b c d e f g h i j k l m n o p q r s t u v w x y z " * 3] * 2, progress=False)
    assert cards.frame["head"].tolist() == [str(head) for head in lh.head_geometry(model).every_head()]
    maps = lh.token_maps({"shift": [(at, at + 1) for at in range(10, 30)]})
    assert lh.score_heads(model, maps, "token_map", progress=False)["token_map"].flat.isfinite().all()
    refused = pytest.raises(ValueError, match="patch_heads") if name in NO_QUERIES else nullcontext()
    with refused:
        assert lh.ranking.attribute_queries(model, [pair], progress=False).flat.isfinite().all()


NO_QUERIES = {"afmoe", "gpt_neo", "gpt_oss", "gptj", "laguna", "llama4", "mpt", "opt", "xglm"}
NO_QUERIES |= {"olmo_hybrid", "jamba", "gemma4", "deepseek_v2", "deepseek_v3"}
"""Whose attention is not made again from its queries and keys."""


@pytest.mark.parametrize("name", ["opt", "xglm"])
def test_hooks_of_transformer_lens_are_no_ablation(name: str, tmp_path: Any) -> None:
    model = witnesses.bridged(name)
    assert any(point.fwd_hooks for point in model.hook_dict.values())
    assert changed_by(model) is None
    lh.evaluate(model, TRIAL, generate=False, out=tmp_path / "run", progress=False)
    model.add_hook("blocks.0.attn.hook_z", lambda z, hook: z)
    try:
        assert changed_by(model) == "hooks attached (an ablation?)"
    finally:
        model.reset_hooks()


def test_windows_and_chunks_are_those_of_the_configuration() -> None:
    shape = {name: lh.head_geometry(witnesses.bridged(name)) for name in ("exaone4", "gpt_neo", "llama4", "cohere2")}
    assert shape["exaone4"].windows == shape["cohere2"].windows == (6, None) * 2
    assert shape["gpt_neo"].windows == (None, 6) * 2
    assert shape["llama4"].chunks == (8, None) * 2
    assert shape["llama4"].windows == (None,) * 4


def test_sinks_take_a_part_of_the_mass_and_that_is_right() -> None:
    report = lh.check_model(witnesses.bridged("gpt_oss"))
    (row,) = [check for check in report.checks if check.name == "patterns sum to one"]
    assert row.passed
    assert "sinks" in row.note


def test_what_a_learned_sink_takes() -> None:
    """1 - the sum of each row of transformers' own attention, mean over the rows of a text after the first."""
    text = "a learned sink takes a share of every row"
    model = witnesses.bridged("gpt_oss")
    found = lh.rank(model, lh.plain_texts([text]), "learned_sink", progress=False)["learned_sink"]
    tokens = torch.tensor([model.tokenizer(text).input_ids])
    rows = witnesses.plain("gpt_oss")(tokens, output_attentions=True, use_cache=False).attentions
    expected = torch.stack([1 - layer[0, :, 1:].detach().sum(-1).mean(-1) for layer in rows])
    torch.testing.assert_close(found.values, expected, atol=1e-5, rtol=1e-4)
    assert float(expected.min()) > 0.01
    assert float(expected.max()) < 0.99
