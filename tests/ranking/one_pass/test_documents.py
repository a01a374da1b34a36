"""score_heads on document trials, and rerank: prompts, spans, run folders, bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lens_heads as lh
from lens_heads.model.hooks import has_hooks
from lens_heads.ranking.one_pass.documents import query_attention
from lens_heads.trials.documents import ASK, FRAMES, Document, DocumentTrial, encode, numbered
from tests import zoo
from tests.ranking.one_pass.scorers.test_query_focused import DOCUMENTS, trial

texts = st.lists(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Z", "C"]), min_size=1, max_size=20),
    min_size=1,
    max_size=4,
)


def ids(text: str) -> list[int]:
    return zoo.tokenizer()(text, add_special_tokens=False).input_ids


@given(texts, st.text(min_size=1, max_size=12))
@settings(deadline=None)
def test_spans_hold_exactly_the_documents_with_their_numbers(found: list[str], query: str) -> None:
    documents = [Document(text, "title" if i % 2 else "", str(i)) for i, text in enumerate(found)]
    tokenizer = zoo.tokenizer()
    encoded = encode("t", query, documents, tokenizer)
    for number, (document, (start, end), tag) in enumerate(
        zip(documents, encoded.documents, encoded.tags, strict=True), 1
    ):
        assert encoded.tokens[start:end].tolist() == ids(f"[{number}] {document.written}")
        assert encoded.tokens[start : start + tag].tolist() == ids(f"[{number}]")
    assert encoded.tokens[encoded.ask :].tolist() == ids(f"{ASK}\n\nQuery: {query}")
    assert encoded.null_tokens[encoded.ask :].tolist() == ids(f"{ASK}\n\nQuery: N/A")
    assert encoded.tokens[: encoded.ask].equal(encoded.null_tokens[: encoded.ask])


def test_the_frame_is_written_as_published() -> None:
    encoded = encode("t", "q?", [Document("text", "Title", "1")], zoo.tokenizer(), frame="llama3")
    assert zoo.tokenizer().decode(encoded.tokens).removeprefix("<bos>") == (
        "<|start_header_id|>user<|end_header_id|> Here are some paragraphs: \n\n[1] Title\ntext \n\n"
        "Please find information that are relevant to the following query in the paragraphs above. \n\nQuery: q?"
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>"
    )
    with pytest.raises(ValueError, match=r"frame='llama4': use 'llama3', 'qwen2\.5', or None"):
        encode("t", "q?", [Document("text")], zoo.tokenizer(), frame="llama4")
    assert set(FRAMES) == {"llama3", "qwen2.5"}


def test_two_passes_over_the_query_rows_see_what_one_full_forward_sees(model: Any) -> None:
    encoded = trial().encode(model.tokenizer)
    seen = list(query_attention(model, encoded, chunk=40))
    _, cache = model.run_with_cache(encoded.tokens[None], names_filter=lambda name: name.endswith("hook_pattern"))
    for layer, (attention, null) in enumerate(seen):
        whole = cache[f"blocks.{layer}.attn.hook_pattern"][0]
        expected = whole[:, encoded.ask :, : encoded.ask].mean(1)
        torch.testing.assert_close(attention, expected, atol=1e-5, rtol=1e-4)
        assert null.shape == attention.shape
    assert not has_hooks(model)


def test_a_run_folder_continues_and_records_the_rule(gqa: Any, tmp_path: Path) -> None:
    trials = [trial(id="a"), trial(("1",), "where?", "b")]
    first = lh.score_heads(gqa, trials, methods=["qr", "qr_ndcg"], progress=False, out=tmp_path / "run")
    calls: list[Any] = []
    gqa.hook_dict["blocks.0.attn.hook_pattern"].add_hook(lambda x, hook: calls.append(1))
    gqa.reset_hooks()
    again = lh.score_heads(gqa, trials, methods=["qr", "qr_ndcg"], progress=False, out=tmp_path / "run")
    assert first["qr"].per_trial.equal(again["qr"].per_trial)
    assert (first["qr"].meta["rule"], first["qr_ndcg"].meta["rule"]) == ("gold_mass", "ndcg")
    loaded = lh.HeadScores.load(tmp_path / "run" / "qr.json")
    assert loaded.meta["rule"] == "gold_mass"
    assert loaded.trial_ids == ("a", "b")
    assert first["qr"].values.equal(first["qr"].per_trial.mean(0))
    with pytest.raises(ValueError, match="different settings"):
        lh.score_heads(gqa, trials[:1], methods=["qr", "qr_ndcg"], progress=False, out=tmp_path / "run")


def test_rerank_masks_the_curve_summed_over_heads(gqa: Any) -> None:
    heads = ["L0H1", "L1H3", "L1H0"]
    found = lh.rerank(gqa, "who ran?", DOCUMENTS, heads, chunk=33)
    encoded = trial().encode(gqa.tokenizer)
    curve = torch.zeros(encoded.ask)
    for layer, (a, a0) in enumerate(query_attention(gqa, encoded)):
        for name in heads:
            head = lh.Head.parse(name)
            if head.layer == layer:
                curve = curve + a[head.head] - a0[head.head]
    expected = {}
    for number, (start, end) in enumerate(encoded.documents, 1):
        c = curve[start:end]
        expected[str(number)] = float(c[c > c.mean() - 2 * c.std()].sum())
    assert dict(zip(found["id"], found["score"], strict=True)) == pytest.approx(expected, abs=1e-6)
    assert list(found["rank"]) == [1, 2, 3, 4, 5]
    assert found["score"].is_monotonic_decreasing
    assert [DOCUMENTS[i] for i in found["position"]] == [DOCUMENTS[int(id) - 1] for id in found["id"]]
    assert isinstance(found, pd.DataFrame)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gold": ()}, "trial one has no gold document"),
        ({"gold": ("9",)}, "trial one: there is no document '9' to be gold: the ids are 1, 2, 3, 4, 5"),
        ({"query": " "}, "trial one: the query is empty"),
        ({"documents": ()}, "trial one has no documents"),
        ({"documents": ("a", " ")}, "trial one: document 2 is empty"),
        ({"documents": ("a", "b", "a")}, "documents 1 and 3 are the same text"),
        ({"documents": (Document("a", id="x"), Document("b", id="x"))}, "two documents have the id 'x'"),
        ({"id": 3}, "trial id 3 must be a string"),
    ],
)
def test_a_wrong_trial_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        DocumentTrial(**{"id": "one", "query": "who?", "documents": DOCUMENTS, "gold": ("1",), **change})


def test_bad_input_is_refused_before_any_work(gqa: Any) -> None:
    long = DocumentTrial("long", "who?", ("word " * 200,), ("1",))  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"trial long: 1 documents make a prompt of \d+ tokens, but the context window"
    ):
        lh.score_heads(gqa, [trial(), long], progress=False)
    with pytest.raises(ValueError, match="two trials have the id 'one'"):
        lh.score_heads(gqa, [trial(), trial()], progress=False)
    with pytest.raises(ValueError, match="locos reads needles, but was given documents: use qr, qr_ndcg"):
        lh.score_heads(gqa, [trial()], methods="locos", progress=False)
    with pytest.raises(ValueError, match="did you mean 'summed_attention'"):
        lh.score_heads(gqa, [trial()], methods="sumed_attention", progress=False)
    with pytest.raises(
        TypeError,
        match=r"must be a list of DocumentTrials or EncodedDocuments",
    ):
        lh.score_heads(gqa, [trial(), lh.Trial("x", "q", "a")], progress=False)
    with pytest.raises(ValueError, match="there are no heads to rank by"):
        lh.rerank(gqa, "who?", DOCUMENTS, [])
    with pytest.raises(ValueError, match="does not exist"):
        lh.rerank(gqa, "who?", DOCUMENTS, ["L9H0"])
    with pytest.raises(ValueError, match="the query is empty"):
        lh.rerank(gqa, "", DOCUMENTS, ["L0H0"])
    with pytest.raises(ValueError, match="rerank: documents 1 and 2 are the same text"):
        lh.rerank(gqa, "who?", ["a", "a"], ["L0H0"])


def test_shuffling_keeps_ids_and_gold() -> None:
    one = trial().shuffled(1)
    assert one == trial().shuffled(1)
    assert sorted(d.id for d in one.documents) == ["1", "2", "3", "4", "5"]
    assert any(trial().shuffled(seed).documents != trial().documents for seed in range(3))
    assert numbered(one.documents, "x") == one.documents
