"""Influence of heads on documents: losses by plain forwards, the ratio, and a planted induction circuit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.model.hooks import has_hooks
from tests import zoo
from tests.conftest import tiny
from tests.planted_tokens import INDUCTION, induction_model


def ids(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(3, 250, (n,), generator=torch.Generator().manual_seed(seed))


def test_losses_are_those_of_plain_forwards(arch: str, model: Any) -> None:
    documents = [ids(30), ids(140, 1)]
    found = lh.influence(model, documents, ["L0H1", "L2H3"], progress=False, kind="uniform")
    for number, tokens in enumerate(documents):
        rows = found.tokens[found.tokens["document"] == f"text-{number}"]
        with torch.no_grad():
            whole = zoo.hf_model(arch)(tokens[None]).logits[0].log_softmax(-1)
            with lh.ablate(model, ["L0H1", "L2H3"], kind="uniform"):
                without = model(tokens[None])[0].log_softmax(-1)
        for name, logits in (("loss", whole), ("loss_without", without)):
            expected = torch.tensor([-float(logits[t - 1, tokens[t]]) for t in range(1, len(tokens))])
            got = torch.tensor(rows[name].to_numpy())
            torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4, check_dtype=False)
        document = found.frame.set_index("document").loc[f"text-{number}"]
        assert document["difference"] == pytest.approx(rows["difference"].sum() / len(rows), abs=1e-6)
        assert document["influence"] == pytest.approx(document["difference"] / document["loss"])
    assert found.frame["influence"].is_monotonic_decreasing
    assert not has_hooks(model)


def test_no_heads_have_no_influence_and_responses_alone_count(gqa: Any) -> None:
    found = lh.influence(gqa, [("abcdef", "ghi")], [], progress=False, kind="uniform")
    assert list(found.tokens["token"]) == ["g", "h", "i"]
    assert float(found.tokens["difference"].abs().max()) == 0
    assert len(found.plot().data[0].y) == 3
    with pytest.raises(ValueError, match="document='b': the documents are text-0"):
        found.plot("b")


@pytest.mark.slow
def test_repeated_text_needs_the_induction_head_more_than_shuffled_text() -> None:
    model = induction_model(writes=2.0)
    block = torch.arange(20, 32)
    repeated = torch.cat([torch.tensor([1]), block, block, block])
    orders = [torch.randperm(12, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    shuffled = torch.cat([torch.tensor([1]), *(block[order] for order in orders)])
    found = lh.influence(model, [repeated, shuffled], INDUCTION, progress=False, kind="uniform").frame.set_index(
        "document"
    )
    assert found.loc["text-0", "influence"] > 0.05
    assert found.loc["text-0", "influence"] > found.loc["text-1", "influence"] + 0.05


def test_a_run_continues_and_bad_input_is_named(gqa: Any, tmp_path: Any) -> None:
    one, again = (
        lh.influence(gqa, [ids(20)], "L0H0", out=tmp_path / "a", progress=False, kind="uniform") for _ in range(2)
    )
    assert one.tokens.equals(again.tokens)
    with pytest.raises(ValueError, match="head L9H0 does not exist"):
        lh.influence(gqa, [ids(20)], "L9H0", kind="uniform")
    with pytest.raises(ValueError, match="there are no texts"):
        lh.influence(tiny("gpt2"), [], "L0H0", kind="uniform")
