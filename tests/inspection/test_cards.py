"""Cards of heads: the numbers are those of the scores, kinds follow their thresholds, and tokens those of a plain readout."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import lens_heads as lh
from lens_heads.cli.main import app
from lens_heads.heads.sets import every_head
from lens_heads.inspection.cards import SCORES, THRESHOLDS, HeadCards, describe, kind_of, top_tokens, writes
from lens_heads.model.geometry import output_weights
from lens_heads.plots.heads import kind_map
from lens_heads.ranking.one_pass.weighing import value_weights
from lens_heads.report import kinds, tables
from tests.conftest import real_model, tiny
from tests.planted_tokens import INDUCTION, PREVIOUS, induction_model

SMALL = [(token, token) for token in range(20, 40)]


@pytest.fixture
def few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny tokenizer has no words, so the maps are of ids."""
    maps = {name: lh.ranking.TokenMap(tuple(SMALL), name == "copy_suppression") for name in SCORES[-3:]}
    monkeypatch.setattr("lens_heads.inspection.cards.packaged_maps", lambda tokenizer, d_vocab: maps)


def text() -> list[int]:
    return torch.randint(3, 250, (40,), generator=torch.Generator().manual_seed(0)).tolist()


@pytest.mark.slow
def test_a_card_holds_the_scores(arch: str, model: Any, few_tokens: None) -> None:
    further = lh.HeadScores.from_trials("mine", torch.rand(2, 3, 4), ["a", "b"])
    found = describe(model, text=[text()], rankings=further, progress=False)
    frame = found.frame.set_index("head")
    assert list(frame.index) == [str(head) for head in every_head(3, 4)]
    shape = lh.head_geometry(model)
    blocks = [lh.repeated_blocks(model, block=50, copies=3, seed=seed) for seed in range(3)]
    scores = lh.score_heads(model, blocks, ["induction", "previous"], progress=False)
    scores |= lh.score_heads(model, lh.plain_texts([text()]), ["sink", "span"], progress=False)
    for name, one in scores.items():
        assert frame.loc["L1H2", name] == pytest.approx(one["L1H2"], abs=1e-6)
    assert frame.loc["L2H3", "mine"] == pytest.approx(further["L2H3"])
    assert frame.loc["L2H3", "kv_head"] == 3 // shape.group
    assert list(frame["window"].drop_duplicates()) == [*dict.fromkeys(shape.windows)] or frame["window"].isna().any()
    assert frame["promotes"].str.len().min() > 0
    assert len(describe(model, ["L1H0"], text=[text()], progress=False).frame) == 1


@pytest.mark.slow
def test_a_planted_circuit_gets_its_kinds(few_tokens: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lens_heads.inspection.cards.BLOCK", 12)
    found = describe(induction_model(), text=[text()], progress=False)
    kind = found.frame.set_index("head")["kind"]
    assert kind[str(INDUCTION)] == "induction"
    assert kind[str(PREVIOUS)] == "previous"
    assert list(found.of("induction")["head"]) == [str(INDUCTION)]
    assert found.kinds["entropy"] == 2, "the other two attend evenly"
    with pytest.raises(ValueError, match="kind='name mover': the kinds are induction"):
        found.of("name mover")


@pytest.mark.slow
def test_words_that_the_tokenizer_lacks_leave_their_columns_empty(gqa: Any) -> None:
    with pytest.warns(UserWarning, match="describe leaves successor out: map 'successor': 0 of"):
        found = describe(gqa, ["L1H0"], text=[text()], progress=False)
    assert found.frame["successor"].isna().all()
    assert found.frame["copying"].notna().all()
    assert found.frame["induction"].notna().all()


def test_scores_come_alone_or_as_score_heads_returns_them(gqa: Any, few_tokens: None) -> None:
    mine = lh.HeadScores.from_trials("mine", torch.rand(2, 3, 4), ["a", "b"])
    found = describe(gqa, ["L2H1"], text=[text()], rankings={"other": mine}, progress=False)
    assert found.frame["other"].iloc[0] == pytest.approx(mine["L2H1"])
    for name in ("induction", "kind"):
        with pytest.raises(ValueError, match=f"scores '{name}': a card has a column of this name"):
            describe(gqa, ["L2H1"], text=[text()], rankings={name: mine}, progress=False)


def test_texts_have_no_answer_to_be_doubted(gqa: Any, few_tokens: None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "describe leaves")
        lh.describe(gqa, "L0H0", text=["It rained all day ", "A bell rang "], progress=False)


def test_the_kind_is_the_score_furthest_above_its_threshold() -> None:
    none = dict.fromkeys(THRESHOLDS, 0.0)
    assert kind_of(none) == ""
    assert kind_of(none | {"induction": 0.29}) == ""
    assert kind_of(none | {"successor": float("nan"), "previous": 0.5}) == "previous"
    assert kind_of(none | {"induction": 0.3, "sink": 0.85}) == "sink"
    assert kind_of(none | {"induction": 0.9, "sink": 0.85}) == "induction"


def test_promoted_tokens_are_those_of_a_plain_readout(arch: str, model: Any) -> None:
    """The final norm and the unembedding of the Hugging Face model, on a write through a post-attention norm."""
    vectors = [torch.randn(4, 32, generator=torch.Generator().manual_seed(layer)) for layer in range(3)]
    found = top_tokens(model, dict(enumerate(vectors)), 3)
    hf = model.original_model
    inner = hf.transformer if arch == "gpt2" else hf.model
    with torch.no_grad():
        for layer, head in ((0, 0), (2, 3)):
            x = vectors[layer][head][None, None]
            if arch in ("gemma2", "gemma3", "olmo2", "olmo3"):
                x = inner.layers[layer].post_attention_layernorm(x)
            norm = inner.ln_f if arch == "gpt2" else inner.norm
            logits = (hf.lm_head(norm(x)) - hf.lm_head(norm(torch.zeros_like(x))))[0, 0]
            expected = " ".join(repr(model.tokenizer.decode([t])) for t in logits.topk(3).indices.tolist())
            assert found[4 * layer + head] == expected


def test_the_strongest_direction_is_that_of_the_whole_matrix(gqa: Any) -> None:
    found = writes(gqa, 2)
    whole = value_weights(gqa, 1)[2] @ output_weights(gqa, 1)[2]
    main = torch.linalg.svd(whole).Vh[0]
    main = main if (main @ gqa.W_U).max() > (-main @ gqa.W_U).max() else -main
    assert found[6] == top_tokens(gqa, {1: torch.stack([main] * 4)}, 2)[0]


def cards() -> HeadCards:
    rows = []
    for head, kind in (("L0H0", "induction"), ("L0H1", ""), ("L1H0", "sink"), ("L1H1", "copy_suppression")):
        at = lh.Head.parse(head)
        rows.append(
            {"head": head, "layer": at.layer, "index": at.head, "kv_head": 0, "window": None, "kind": kind}
            | dict.fromkeys(SCORES, 0.5)
            | {"promotes": "' [red]a'", "writes": "' b'"}
        )
    return HeadCards("tiny", pd.DataFrame(rows), {"thresholds": THRESHOLDS})


def test_the_map_the_table_and_the_page(tmp_path: Any) -> None:
    found = cards()
    figure = kind_map(found.frame, list(THRESHOLDS), title="x")
    z = np.array(figure.data[0].z)
    kinds_in_order = list(THRESHOLDS)
    assert z[0, 0] == 1 + kinds_in_order.index("induction")
    assert z[0, 1] == 0
    assert figure.data[0].text[1][1] == "X"
    assert [trace.name for trace in figure.data[1:]] == ["induction", "copy suppression", "sink"]
    table = tables.cards(found)
    assert table.row_count == 3
    assert tables.cards(found, ["L0H1"]).row_count == 1
    page = kinds.write(found, tmp_path).read_text()
    assert "1 of 4 heads are of no kind known here" in page
    assert len(pd.read_csv(tmp_path / "heads.csv")) == 4
    assert "HeadCards(tiny, 4 heads" in repr(found)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"heads": ["L9H9"]}, "head L9H9 does not exist"),
        (
            {"rankings": lh.HeadScores.from_trials("mine", torch.rand(1, 2, 2), ["a"])},
            "scores 'mine' is for a model of 2 layers",
        ),
        ({"k": 0}, "k=0"),
        ({"text": []}, "there are no texts"),
    ],
)
def test_what_does_not_fit_is_named(few_tokens: None, how: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        describe(tiny("llama-gqa"), progress=False, **how)


@pytest.mark.slow
@pytest.mark.real
def test_a_real_model_has_induction_heads_that_transformer_lens_finds_too(tmp_path: Any, capsys: Any) -> None:
    """By the command, with its page; the published detector of TransformerLens puts the same head first."""
    text = tmp_path / "text.txt"
    text.write_text(lh.ranking.common_texts(n=1)[0])
    given = ["describe", "gemma-3-270m", "--heads", "L5H1", "--text", str(text), "-o", str(tmp_path)]
    app(given, standalone_mode=False)
    shown = capsys.readouterr().out
    assert "L5H1" in shown
    assert "induction" in shown
    frame = pd.read_csv(tmp_path / "heads.csv", keep_default_na=False).set_index("head")
    assert frame.loc["L5H1", "kind"] == "induction"
    assert frame["induction"].astype(float).idxmax() == "L5H1"
    model = real_model("gemma-3-270m")
    probe = lh.repeated_blocks(model, block=50, copies=2)
    with torch.no_grad():
        logits = model(probe.tokens[None])[0]
    later = logits[51:-1].log_softmax(-1).gather(-1, probe.tokens[52:, None]).mean()
    with torch.no_grad(), lh.ablate(model, "L5H1", kind="zero"):
        without = model(probe.tokens[None])[0][51:-1].log_softmax(-1).gather(-1, probe.tokens[52:, None]).mean()
    assert float(later - without) > 0.1, "the head that scores highest carries the repetition"
