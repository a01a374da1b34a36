"""Anatomy against enumeration, plain loops written from the formulas, and heads whose doings are known."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pandas as pd
import pytest
import torch

import lens_heads as lh
from lens_heads.heads.head import Head
from lens_heads.heads.scores import HeadScores
from lens_heads.inspection import anatomy
from lens_heads.inspection.anatomy import Source
from lens_heads.ranking.one_pass.definition import Scorer
from lens_heads.ranking.one_pass.layer_view import LayerView
from lens_heads.trials.encoded import EncodedTrial
from tests import planted, reference, zoo
from tests.conftest import tiny
from tests.planted import COPIER, DECOY, SUPPRESSOR, WRITER

EVERY = [Head(layer, head) for layer in range(zoo.LAYERS) for head in range(4)]


def make(values: Any, **fields: Any) -> HeadScores:
    scores = torch.as_tensor(values, dtype=torch.float32)
    return HeadScores("locos", scores, scores[None], ("one",), **fields)


# kv groups


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("k", range(1, 9))
def test_the_expected_cover_is_what_enumerating_every_set_gives(group: int, k: int) -> None:
    sets = list(itertools.combinations(range(8), k))
    expected = sum(len({head // group for head in chosen}) for chosen in sets) / len(sets)
    found = anatomy.kv_groups(make(torch.arange(8.0).reshape(2, 4)), k=k, group=group)
    assert found.expected == pytest.approx(expected, abs=1e-12)
    assert (found.k, found.group, found.groups) == (k, group, 8 // group)


def test_groups_are_of_neighbouring_heads_of_one_layer() -> None:
    scores = make([[9, 8, 1, 0], [7, 2, 3, 0]])  # L0H0 L0H1 L1H0 L1H2 L1H1
    assert [anatomy.kv_groups(scores, k=k, group=2).covered for k in (1, 2, 3, 4, 5)] == [1, 1, 2, 3, 3]
    assert [anatomy.kv_groups(scores, k=k, group=2).largest for k in (1, 2, 3, 4, 5)] == [1, 2, 2, 2, 2]
    whole = anatomy.kv_groups(scores, k=5, group=4)
    assert (whole.covered, whole.largest, whole.groups) == (
        2,
        3,
        2,
    )  # One kv head per layer: groups end with the layer.


def test_groups_that_cannot_be_are_refused() -> None:
    scores = make([[1, 2, 3, 4]])
    for group in (0, 3, 8, -2):
        with pytest.raises(ValueError, match=f"group={group} does not fit 4 query_heads per layer"):
            anatomy.kv_groups(scores, k=1, group=group)
    with pytest.raises(ValueError, match="scores kv_heads, but this needs scores of query_heads"):
        anatomy.kv_groups(make([[1, 2]], unit="kv_head"), k=1, group=1)
    with pytest.raises(ValueError, match="k=0: must be a positive integer"):
        anatomy.kv_groups(scores, k=0, group=2)
    with pytest.raises(ValueError, match="k=5: must be an integer from 0 to 4"):
        anatomy.kv_groups(scores, k=5, group=2)


# Concentration


def gini(x: list[float]) -> float:
    """Half the relative mean absolute difference: the definition."""
    return sum(abs(a - b) for a in x for b in x) / (2 * len(x) * sum(x))


def test_concentration_worked_by_hand() -> None:
    """40 heads: 1 % is one of them, 5 % two, 10 % four; what is negative counts as nothing."""
    values = [10, 6, 4, 2, 1, 1] + [0] * 14 + [-5] * 20
    found = anatomy.concentration(make(torch.tensor(values).reshape(4, 10)[:, torch.randperm(10)]))
    assert (found.n, found.positive, found.half) == (40, 6, 2)
    assert (found.top_1, found.top_5, found.top_10) == pytest.approx((10 / 24, 16 / 24, 22 / 24))
    assert found.gini == pytest.approx(gini([max(v, 0) for v in values]))


def test_percentages_are_rounded_up_to_whole_heads() -> None:
    found = anatomy.concentration(make(torch.ones(1, 21)))
    assert (found.top_1, found.top_5, found.top_10) == pytest.approx((1 / 21, 2 / 21, 3 / 21))
    assert anatomy.concentration(make(torch.ones(7, 100))).top_1 == pytest.approx(0.01)  # 7 of 700, not 8.


@pytest.mark.parametrize("value", [0.1, 1.0, 1e-30, 3e30])
def test_equal_heads_have_no_concentration_and_one_head_has_all_of_it(value: float) -> None:
    equal = anatomy.concentration(make(torch.full((2, 5), value)))
    assert (equal.gini, equal.half) == (pytest.approx(0, abs=1e-9), 5)
    alone = torch.zeros(2, 5)
    alone[1, 3] = value
    one = anatomy.concentration(make(alone))
    assert (one.gini, one.half, one.positive, one.top_1) == (pytest.approx(0.9), 1, 1, pytest.approx(1))


def test_gini_and_half_follow_their_definitions() -> None:
    for seed in range(20):
        values = torch.randn(3, 7, generator=torch.Generator().manual_seed(seed)).exp() - 0.5
        found = anatomy.concentration(make(values))
        x = values.double().clamp(min=0).flatten().sort(descending=True).values.tolist()
        assert found.gini == pytest.approx(gini(x))
        assert found.half == next(m for m in range(1, 22) if sum(x[:m]) >= sum(x) / 2)


def test_without_a_positive_score_there_is_nothing_to_concentrate() -> None:
    with pytest.raises(ValueError, match="locos: no head scores above zero"):
        anatomy.concentration(make([[0, -1]]))


# Literalness and provenance on tiny random models


def asked(seed: int, n: int, needle: tuple[int, int], question: tuple[int, int] | None) -> EncodedTrial:
    """Four answer tokens: two from the needle (the first held twice there), one told elsewhere too, one told nowhere."""
    tokens = torch.randint(3, 200, (n,), generator=torch.Generator().manual_seed(seed))
    start = needle[0]
    tokens[start + 1] = tokens[start]
    gold = torch.tensor([int(tokens[start]), int(tokens[start + 2]), int(tokens[start - 2]), 250])
    tokens[n - 8] = gold[1]  # In the question, where there is one.
    return EncodedTrial(tokens, needle, "x", gold, f"asked-{seed}", question=question)


def trials() -> list[EncodedTrial]:
    """Of different lengths, so that a batch is padded; the last needle holds none of its answer."""
    made = [asked(0, 40, (8, 13), (31, 36)), asked(1, 47, (20, 26), (37, 43)), asked(2, 36, (4, 7), None)]
    last = asked(3, 44, (10, 14), (35, 40))
    return [*made, EncodedTrial(last.tokens, last.needle, "x", [251, 252], "asked-nowhere", question=last.question)]


def plain(arch: str, trial: EncodedTrial) -> tuple[reference.Plain, list[tuple[int, int]]]:
    """The forward pass and the (row, token it produces) of every answer step."""
    p = reference.Plain(zoo.hf_model(arch), torch.cat([trial.tokens, trial.answer_tokens[:-1]]))
    return p, [(len(trial) - 1 + i, int(y)) for i, y in enumerate(trial.answer_tokens)]


def literal_loop(arch: str, exact: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """(values, per_trial), head by head, step by step, position by position."""
    copied, whole = (torch.zeros(len(trials()), zoo.LAYERS, 4) for _ in range(2))
    for i, trial in enumerate(trials()):
        p, steps = plain(arch, trial)
        start, end = trial.needle  # type: ignore[misc]
        for head, (row, token), key in itertools.product(EVERY, steps, range(start, end)):
            u = p.direction(head.layer, row, token, exact)
            phi = max(reference.phi(p, head.layer, head.head, row, key, u), 0)
            whole[i, head.layer, head.head] += phi
            copied[i, head.layer, head.head] += phi if int(p.tokens[key]) == token else 0
    # Behind a sliding window the needle is out of sight and every sum is 0.
    return tuple(torch.where(w > 0, c / w, 0) for c, w in ((copied.sum(0), whole.sum(0)), (copied, whole)))  # type: ignore


def literal_matches(arch: str, direction: str = "raw", batch_size: int = 1) -> None:
    found = anatomy.literalness(
        tiny(arch), trials(), teacher_forced=True, direction=direction, batch_size=batch_size, progress=False
    )
    values, per_trial = literal_loop(arch, direction == "exact")
    torch.testing.assert_close(found.values, values, atol=2e-5, rtol=2e-4)
    torch.testing.assert_close(found.per_trial, per_trial, atol=2e-5, rtol=2e-4)
    assert not torch.allclose(found.values, found.per_trial.mean(0), atol=1e-2)  # A ratio of sums, no mean of ratios.
    assert 0 < float(values.max()) < 1
    assert not found.per_trial[-1].any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "direction", "batch_size"),
    [("gpt2", "raw", 1), ("llama-gqa", "raw", 4), ("gemma3", "exact", 2), ("olmo3", "raw", 3)],
)
def test_literal_share_matches_a_loop_written_from_the_formula(arch: str, direction: str, batch_size: int) -> None:
    literal_matches(arch, direction, batch_size)


def broken(change: Callable[[LayerView], LayerView], name: str) -> Any:
    """One of the private scores, made to look at a changed view."""
    right = getattr(anatomy, name)
    return lambda view, **options: right(change(view), **options)


def late(view: LayerView) -> LayerView:
    """The tokens one position off: what stands before a key instead of at it."""
    return LayerView(**{**vars_of(view), "tokens": view.tokens.roll(1)})


def vars_of(view: LayerView) -> dict[str, Any]:
    return {name: getattr(view, name) for name in LayerView.__dataclass_fields__}


@pytest.mark.slow
def test_reading_the_token_beside_a_key_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    literal_matches("llama-gqa")
    monkeypatch.setattr(anatomy, "_positive", broken(late, "_positive"))
    with pytest.raises(AssertionError):
        literal_matches("llama-gqa")


def source_of(trial: EncodedTrial, tokens: torch.Tensor, row: int, key: int, token: int) -> Source:
    start, end = trial.needle  # type: ignore[misc]
    if start <= key < end:
        return "needle"
    if key == 0:
        return "sink"
    if int(tokens[key]) == token:
        return "answer mention"
    if trial.question is not None and trial.question[0] <= key < trial.question[1]:
        return "question"
    return "neighbourhood" if row - key < 16 else "bulk"


def provenance_matches(arch: str, batch_size: int = 1) -> pd.DataFrame:
    frame = anatomy.provenance(
        tiny(arch), trials(), EVERY, teacher_forced=True, batch_size=batch_size, progress=False
    ).set_index("head")
    expected = pd.DataFrame(0.0, index=[str(head) for head in EVERY], columns=list(get_args(Source)))
    for trial in trials():
        p, steps = plain(arch, trial)
        for head, (row, token) in itertools.product(EVERY, steps):
            attention = p.A[head.layer][head.head, row]
            key = max(range(row + 1), key=lambda j, attention=attention: float(attention[j]))
            expected.loc[str(head), source_of(trial, p.tokens, row, key, token)] += 1 / len(steps) / len(trials())
    assert frame.columns.tolist() == [*expected.columns, "trials"]
    assert frame.index.tolist() == expected.index.tolist()
    assert frame["trials"].tolist() == [len(trials())] * len(EVERY)
    assert abs(frame[expected.columns] - expected).to_numpy().max() < 1e-6
    assert frame[expected.columns].sum(axis=1).tolist() == pytest.approx([1] * len(EVERY))
    return frame


@pytest.mark.slow
def test_provenance_matches_a_loop_over_rows(arch: str) -> None:
    frame = provenance_matches(arch, batch_size=4)
    seen = [kind for kind in get_args(Source) if (frame[kind] > 0).any()]
    assert {"needle", "question", "neighbourhood", "bulk"} <= set(seen)


@pytest.mark.slow
def test_a_neighbourhood_of_another_size_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    provenance_matches("llama-gqa")
    monkeypatch.setattr(anatomy, "NEIGHBOURHOOD", 12)
    with pytest.raises(AssertionError):
        provenance_matches("llama-gqa")


# Provenance: the order, on attention put there by hand


def looking_at(key: int, **change: Any) -> Source:
    """The kind of one key for a row at position 39 that produces token 7; needle 10-14, question 30-35, 7 at 20 and 32."""
    tokens = torch.zeros(40, dtype=torch.long)
    tokens[[20, 32]] = 7
    pattern = torch.full((1, 1, 40), 0.01)
    pattern[0, 0, key] = 0.6
    fields: dict[str, Any] = dict(
        layer=0,
        pattern=pattern,
        values=torch.zeros(1, 40, 2),
        z=torch.zeros(1, 1, 2),
        W_O=torch.zeros(1, 2, 3),
        u=torch.zeros(1, 3),
        constant=torch.zeros(1),
        tokens=tokens,
        next_tokens=torch.tensor([7]),
        row_positions=torch.tensor([39]),
        is_answer=torch.tensor([True]),
        needle=(10, 15),
        question=(30, 36),
    )
    view = LayerView(**{**fields, **change})
    (kind,) = [kind for kind in get_args(Source) if anatomy._looks_at(view, kind).tolist() == [1]]
    assert sum(float(anatomy._looks_at(view, kind)) for kind in get_args(Source)) == 1
    return kind


@pytest.mark.parametrize(
    ("key", "change", "kind"),
    [
        (10, {}, "needle"),
        (14, {}, "needle"),
        (15, {}, "bulk"),
        (0, {}, "sink"),
        (0, {"needle": (0, 3)}, "needle"),  # The needle comes first, whatever else a key is,
        (20, {"needle": (18, 22)}, "needle"),
        (32, {"needle": (31, 34)}, "needle"),
        (0, {"tokens": torch.full((40,), 7)}, "sink"),  # then the sink,
        (0, {"question": (0, 5)}, "sink"),
        (20, {}, "answer mention"),
        (32, {}, "answer mention"),  # then a mention of the answer, also in the question,
        (30, {}, "question"),
        (35, {}, "question"),  # then the question, though it is near,
        (36, {}, "neighbourhood"),
        (30, {"question": None}, "neighbourhood"),  # then what is near,
        (39, {}, "neighbourhood"),
        (24, {}, "neighbourhood"),  # the row itself and 15 before it,
        (23, {}, "bulk"),  # then the rest.
        (23, {"question": (20, 24)}, "question"),
    ],
)
def test_the_first_kind_that_fits_is_taken(key: int, change: dict[str, Any], kind: Source) -> None:
    assert looking_at(key, **change) == kind


def test_a_scorer_sees_the_span_of_the_question(gqa: Any) -> None:
    seen: list[Any] = []

    def look(view: LayerView) -> torch.Tensor:
        seen.append(view.question)
        return torch.zeros(4)

    for rows in ("answer", "generated", "prompt"):
        lh.score_heads(gqa, trials()[:3], [Scorer("mine", look, rows)], teacher_forced=True, progress=False)
    assert seen == [span for span in ((31, 36), (37, 43), None) for _ in range(zoo.LAYERS)] * 3


# Heads whose doings are known


@pytest.mark.parametrize("decoding", [{"teacher_forced": True}, {"max_new_tokens": 5}])
def test_the_copier_is_literal_the_writer_is_not_and_both_read_the_needle(decoding: dict[str, Any]) -> None:
    model = planted.model()
    literal = anatomy.literalness(model, planted.trials(), batch_size=3, progress=False, **decoding)
    assert literal[COPIER] > 0.999
    assert literal[WRITER] < 0.001
    assert literal[DECOY] == literal[SUPPRESSOR] == 0  # They write nothing towards the answer: no share of nothing.
    assert torch.isfinite(literal.per_trial).all()
    assert (literal.method, literal.signed) == ("literal_share", False)
    assert len(literal.trial_ids) == literal.outcomes["passed"] == 8

    frame = anatomy.provenance(
        model, planted.trials(), [WRITER, str(COPIER), DECOY], batch_size=3, progress=False, **decoding
    )
    assert frame["head"].tolist() == ["L1H2", "L0H1", "L0H3"]
    assert frame["needle"].tolist() == [1, 1, 1]
    assert frame["trials"].tolist() == [8, 8, 8]


def test_without_the_needle_the_same_heads_look_elsewhere() -> None:
    """Answers told outside the needle's span: the copier and the decoy follow them, the writer's clue is bulk."""
    moved = []
    for trial in planted.trials(length=60):
        start, _ = trial.needle  # type: ignore[misc]
        other = (start - 8, start - 4) if start > 30 else (start + 6, start + 10)
        moved.append(EncodedTrial(trial.tokens, other, trial.answer, trial.answer_tokens, trial.id))
    near = torch.tensor([trial.needle[0] + 1 >= 60 - 16 for trial in planted.trials(length=60)])  # type: ignore[index]
    frame = anatomy.provenance(planted.model(), moved, [COPIER, WRITER], teacher_forced=True, progress=False)
    assert frame["answer mention"].tolist() == [1, 0]
    assert frame["neighbourhood"].tolist() == [0, pytest.approx(float(near.float().mean()))]
    assert frame["bulk"].tolist() == [0, pytest.approx(float((~near).float().mean()))]
    literal = anatomy.literalness(planted.model(), moved, teacher_forced=True, progress=False)
    assert literal[COPIER] == literal[WRITER] == 0


def test_heads_that_are_not_there_are_refused(gqa: Any) -> None:
    with pytest.raises(ValueError, match="no heads given"):
        anatomy.provenance(gqa, trials(), [], progress=False)
    with pytest.raises(ValueError, match="head L9H0 does not exist"):
        anatomy.provenance(gqa, trials(), ["L0H1", "L9H0"], progress=False)
    with pytest.raises(TypeError, match=r"select the best with \.top\(k\)"):
        anatomy.provenance(gqa, trials(), make([[1, 2]]), progress=False)  # type: ignore[arg-type]


def test_trials_without_a_needle_are_refused(gqa: Any) -> None:
    bare = EncodedTrial([3, 4, 5], None, "x", [6], "bare")
    for function in (anatomy.literalness, lambda *a, **b: anatomy.provenance(*a, heads="L0H1", **b)):
        with pytest.raises(ValueError, match="trial bare has no needle"):
            function(gqa, [bare], teacher_forced=True, progress=False)


def test_beyond_the_sink_the_first_position_does_not_compete() -> None:
    """A head that looks at position 0 most, and at the needle next, reads the needle."""
    head = COPIER
    model = planted.model()
    moved = []
    for trial in planted.trials(3):
        tokens = trial.tokens.clone()
        tokens[0] = int(trial.answer_tokens[0])  # The copier looks at the answer wherever it stands: here, too.
        moved.append(replace(trial, tokens=tokens))
    options = {"teacher_forced": True, "progress": False}
    with_sink = anatomy.provenance(model, moved, [head], **options).iloc[0]
    without = anatomy.provenance(model, moved, [head], sink=False, **options).iloc[0]
    assert with_sink["sink"] == 1  # Equal attention: the first of two is taken.
    assert (without["needle"], without["sink"]) == (1, 0)


def test_saved_and_loaded_literalness_ranks_as_before(gqa: Any, tmp_path: Path) -> None:
    """A ratio of sums is not the mean of the ratios, so the file has to keep both."""
    found = anatomy.literalness(gqa, trials()[:3], teacher_forced=True, progress=False)
    assert not torch.equal(found.values, found.per_trial.mean(0)), "or the test could not fail"
    loaded = lh.HeadScores.load(found.save(tmp_path / "literal.json"))
    assert torch.equal(loaded.values, found.values)
    assert torch.equal(loaded.per_trial, found.per_trial)
    assert loaded.ranking() == found.ranking()
    with pytest.raises(ValueError, match="form 'lists' cannot store 'values'"):
        found.save(tmp_path / "literal.json", form="lists")
