"""evaluate: log-probabilities and texts equal a plain model's, alone, in batches, under ablation, and resumed."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.answering import evaluation
from lens_heads.answering.choices import CHOICE_METRICS
from lens_heads.answering.evaluation import METRICS, Evaluation, evaluate
from lens_heads.interventions.activations import mean_activations
from lens_heads.model.hooks import has_hooks
from lens_heads.ranking.one_pass.score_heads import score_heads
from lens_heads.stats import mean_interval, share_interval
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.judges import judge_of
from lens_heads.trials.metrics import text_scores
from tests import handmade, zoo
from tests.conftest import random_trial

LENGTHS = ((24, 3), (13, 1), (31, 5), (20, 2))


def trials(aliases: tuple[str, ...] = ()) -> list[EncodedTrial]:
    """Prompts and answers of different lengths."""
    made = [random_trial(i, n, needle=(2, 8), answer=steps) for i, (n, steps) in enumerate(LENGTHS)]
    return [
        EncodedTrial(
            t.tokens, t.needle, zoo.tokenizer().decode(t.answer_tokens), t.answer_tokens, t.id, aliases=aliases
        )
        for t in made
    ]


@cache
def plain(arch: str) -> Any:
    return zoo.hf_model(arch)


def expected_logprobs(hf: Any) -> torch.Tensor:
    return torch.tensor([handmade.gold_logprob(hf, t.tokens, t.answer_tokens) for t in trials()])


def same(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got, expected, atol=3e-5, rtol=3e-4)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_logprob_is_the_plain_models(arch: str, model: Any, batch_size: int) -> None:
    found = evaluate(model, trials(), generate=False, batch_size=batch_size, progress=False)
    same(found.metrics["logprob"], expected_logprobs(plain(arch)))
    assert found.trial_ids == ("random-0", "random-1", "random-2", "random-3")


def test_greedy_match_is_whether_decoding_would_begin_with_the_answer(arch: str, model: Any) -> None:
    hf = plain(arch)
    likeliest = []
    for trial in trials():
        steps: list[int] = []
        for _ in trial.answer_tokens:
            steps.append(int(hf(torch.cat([trial.tokens, torch.tensor(steps).long()])[None]).logits[0, -1].argmax()))
        likeliest.append(replace(trial, answer_tokens=torch.tensor(steps), id=f"{trial.id}-likeliest"))
    nearly = [
        replace(t, answer_tokens=torch.cat([t.answer_tokens[:-1], t.answer_tokens[-1:] + 1]), id=f"{t.id}-off")
        for t in likeliest
    ]
    found = evaluate(model, [*likeliest, *nearly], generate=False, batch_size=3, progress=False)
    assert found.metrics["greedy_match"].tolist() == [1.0] * 4 + [0.0] * 4


def test_in_chunks_logprob_is_the_same(arch: str, model: Any) -> None:
    results = evaluation.answer_batch(model, trials(), 0, chunk=4)
    same(torch.tensor([r.record["logprob"] for r in results]), expected_logprobs(plain(arch)))


@pytest.mark.parametrize("kind", ["zero", "mean", "query_zero", "uniform", "streaming"])
def test_under_ablation_it_is_the_ablated_plain_models(arch: str, model: Any, kind: str) -> None:
    """Hooks act in the fast path of the prefill too, or keep it from being taken."""
    hf, heads = plain(arch), [(0, 1), (1, 0), (2, 3)]
    options = {"sink": 2, "recent": 3} if kind == "streaming" else {}
    means = mean_activations(model, trials()[:2], progress=False) if kind == "mean" else None
    with handmade.by_hand(hf, heads, kind, means and means.z, **options):
        expected = expected_logprobs(hf)
        texts = [handmade.greedy_text(hf, zoo.tokenizer(), t.tokens, 3, {2}) for t in trials()]
    with lh.ablate(model, heads, kind=kind, reference=means, **options):
        found = evaluate(model, trials(), max_new_tokens=3, batch_size=3, progress=False)
    same(found.metrics["logprob"], expected)
    assert list(found.texts) == texts
    assert not torch.allclose(expected, expected_logprobs(hf), atol=1e-2)
    assert not has_hooks(model)


def test_a_logprob_one_row_late_is_noticed(gqa: Any) -> None:
    """The comparison can fail: the answer scored one position late is caught."""
    late = [EncodedTrial(t.tokens[:-1], None, t.answer, t.answer_tokens, t.id) for t in trials()]
    found = evaluate(gqa, late, generate=False, progress=False)
    with pytest.raises(AssertionError):
        same(found.metrics["logprob"], expected_logprobs(plain("llama-gqa")))


@pytest.mark.parametrize("batch_size", [1, 4])
def test_texts_are_a_plain_greedy_loops(arch: str, model: Any, batch_size: int) -> None:
    found = evaluate(model, trials(), max_new_tokens=7, batch_size=batch_size, progress=False)
    texts = [handmade.greedy_text(plain(arch), zoo.tokenizer(), t.tokens, 7, {2}) for t in trials()]
    assert list(found.texts) == texts
    same(found.metrics["logprob"], expected_logprobs(plain(arch)))
    for i, trial in enumerate(trials()):
        for name, value in text_scores(texts[i], [trial.answer]).items():
            assert float(found.metrics[name][i]) == pytest.approx(value)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_stop_token_ends_one_row_only(gqa: Any, monkeypatch: pytest.MonkeyPatch, batch_size: int) -> None:
    """Each row in turn has its third token declared a stop of the model's own."""
    hf = plain("llama-gqa")
    for trial in trials()[:2]:
        steps = trial.tokens
        for _ in range(3):
            steps = torch.cat([steps, handmade.logits(hf, steps)[-1].argmax()[None]])
        stop = int(steps[-1])
        monkeypatch.setattr(gqa.original_model.generation_config, "eos_token_id", [2, stop])
        expected = [handmade.greedy_text(hf, zoo.tokenizer(), t.tokens, 9, {2, stop}) for t in trials()]
        unstopped = [handmade.greedy_text(hf, zoo.tokenizer(), t.tokens, 9, {2}) for t in trials()]
        assert expected != unstopped
        found = evaluate(gqa, trials(), max_new_tokens=9, batch_size=batch_size, progress=False)
        assert list(found.texts) == expected


def newline_trial(seed: int) -> EncodedTrial:
    return random_trial(seed, 18, needle=(2, 6))


@pytest.mark.slow
def test_a_newline_ends_the_text(gqa: Any) -> None:
    hf, newline = plain("llama-gqa"), zoo.tokenizer().convert_tokens_to_ids("Ċ")

    def steps_of(trial: EncodedTrial) -> list[int]:
        tokens = trial.tokens
        for _ in range(8):
            tokens = torch.cat([tokens, handmade.logits(hf, tokens)[-1].argmax()[None]])
        return tokens[len(trial) :].tolist()

    seed, steps = next((s, found) for s in range(300) if newline in (found := steps_of(newline_trial(s)))[1:-1])
    at = steps.index(newline)
    found = evaluate(gqa, [newline_trial(seed), *trials()[:1]], max_new_tokens=8, batch_size=2, progress=False)
    assert found.texts[0] == zoo.tokenizer().decode(steps[:at])
    assert found.texts[1] == handmade.greedy_text(hf, zoo.tokenizer(), trials()[0].tokens, 8, {2})


@pytest.mark.parametrize("marker", ["<think>\n", "<|channel>thought\n", "[THINK]"])
def test_what_follows_a_block_of_thinking_that_the_prompt_opens_is_no_answer(gqa: Any, marker: str) -> None:
    """Whatever is written is thought: no text, no verdict, no trial that passes the gate."""
    opens = torch.tensor(zoo.tokenizer()(marker, add_special_tokens=False).input_ids)
    plainly, thinking = trials()[0], replace(trials()[1], tokens=torch.cat([trials()[1].tokens, opens]))
    said = handmade.greedy_text(plain("llama-gqa"), zoo.tokenizer(), thinking.tokens, 7, {2})
    thinking = replace(thinking, answer=said.strip() or "x")
    assert said
    found = evaluate(gqa, [plainly, thinking], max_new_tokens=7, batch_size=2, progress=False)
    assert found.texts[1] == ""
    assert float(found.metrics["correct"][1]) == 0
    assert found.texts[0] == handmade.greedy_text(plain("llama-gqa"), zoo.tokenizer(), plainly.tokens, 7, {2}) != ""
    with pytest.raises(ValueError, match="gate"):
        score_heads(gqa, [thinking], "locos", max_new_tokens=7, progress=False)


def test_without_generating_there_are_no_text_metrics(gqa: Any) -> None:
    found = evaluate(gqa, trials(), generate=False, progress=False)
    assert list(found.metrics) == ["logprob", "greedy_match"]
    assert found.texts == ("", "", "", "")
    with pytest.raises(ValueError, match=r"no metric 'contains': this evaluation has logprob"):
        found.mean("contains")
    assert set(evaluate(gqa, trials()[:1], max_new_tokens=1, progress=False).metrics) == {*METRICS} - {*CHOICE_METRICS}


def test_aliases_count(gqa: Any) -> None:
    """A trial whose alias is what the model says is right."""
    said = evaluate(gqa, trials(), max_new_tokens=3, progress=False).texts
    assert any(text.strip() for text in said)
    accepted = "the winning word"
    metrics = text_scores(accepted, ["no", accepted])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "text_of", lambda *_: accepted)
        found = evaluate(gqa, trials(("no", accepted)), max_new_tokens=1, progress=False)
        without = evaluate(gqa, trials(), max_new_tokens=1, progress=False)
    assert found.metrics["exact_match"].tolist() == [metrics["exact_match"]] * 4 == [1.0] * 4
    assert without.metrics["exact_match"].tolist() == [0.0] * 4


def test_the_summary_is_of_the_trials() -> None:
    values = torch.tensor([0.0, 1.0, 1.0, 0.5])
    made = Evaluation(("a", "b", "c", "d"), {"contains": values}, ("w", "x", "y", "z"), ("A", "B", "C", "D"))
    assert made.mean("contains") == 0.625
    assert all(math.isnan(end) for end in made.interval("contains")[1:]), "no interval below five trials"
    assert made.frame.to_dict("list") == {
        "trial": ["a", "b", "c", "d"],
        "answer": ["A", "B", "C", "D"],
        "text": ["w", "x", "y", "z"],
        "contains": [0.0, 1.0, 1.0, 0.5],
    }


def test_intervals_are_those_of_shares_and_means_by_groups() -> None:
    nats = torch.tensor([-1.0, -1.5, -0.5, -2.0, -2.5, -1.0, -3.0, -3.5, -0.2, -0.4, -1.2, -1.1])
    right, pairs = (nats > -1.3).float(), tuple(f"needle {i // 2}" for i in range(12))
    texts = ("",) * 12
    alone = Evaluation(tuple("abcdefghijkl"), {"logprob": nats, "correct": right}, texts, texts)
    for level in (0.9, 0.95):
        assert alone.interval("correct", level=level) == share_interval(right.numpy(), groups=None, level=level)
        assert alone.interval("logprob", level=level) == tuple(
            map(float, mean_interval(nats, groups=None, level=level))
        )
        assert alone.interval("logprob", level=level).level == alone.interval("correct", level=level).level == level
    grouped = replace(alone, groups=(pairs,))
    assert grouped.interval("correct") == share_interval(right.numpy(), groups=pairs)
    assert grouped.interval("logprob") == tuple(map(float, mean_interval(nats, groups=pairs)))
    for metric in ("correct", "logprob"):
        (_, low, high), (_, one, other) = alone.interval(metric), grouped.interval(metric)
        assert other - one > high - low, "pairs of trials that agree tell less"
    crossed = replace(alone, groups=(pairs, tuple("abcdefabcdef")))
    assert crossed.interval("logprob") == tuple(map(float, mean_interval(nats, groups=[pairs, "abcdefabcdef"])))
    with pytest.raises(ValueError, match="level=95"):
        alone.interval("correct", level=95)


def test_an_evaluation_knows_the_groups_of_its_trials(gqa: Any) -> None:
    told = [replace(trial, group=("needle", f"name {i}")) for i, trial in enumerate(trials())]
    found = evaluate(gqa, told, generate=False, progress=False)
    assert found.groups == (("needle",) * len(told), tuple(f"name {i}" for i in range(len(told))))
    assert evaluate(gqa, trials(), generate=False, progress=False).groups == ()


def test_a_prompt_that_leaves_no_room_is_refused(gqa: Any) -> None:
    long = random_trial(0, 500)
    evaluate(gqa, [long], generate=False, progress=False)
    with pytest.raises(ValueError, match="500 prompt tokens and 50 to come exceed the context window of 512"):
        evaluate(gqa, [long], progress=False)


def test_no_trials_are_refused(gqa: Any) -> None:
    with pytest.raises(ValueError, match="there are no trials"):
        evaluate(gqa, [], progress=False)


# Errors and run folders


class Counted:
    """`answer_batch` with a record of the trials it was asked for, and trials it fails on."""

    def __init__(self, fail: tuple[str, ...] = (), interrupt: str = "") -> None:
        self.asked: list[str] = []
        self.fail, self.interrupt, self.inner = fail, interrupt, evaluation.answer_batch

    def __call__(self, model: Any, batch: Any, max_new_tokens: int) -> Any:
        self.asked += [trial.id for trial in batch]
        for trial in batch:
            if trial.id == self.interrupt:
                raise KeyboardInterrupt
            if trial.id in self.fail:
                raise RuntimeError(f"out of memory on {trial.id}")
        return self.inner(model, batch, max_new_tokens)


def test_a_trial_that_raises_is_left_out(gqa: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clean = evaluate(gqa, trials(), generate=False, progress=False)
    monkeypatch.setattr(evaluation, "answer_batch", Counted(fail=("random-1",)))
    with pytest.warns(UserWarning, match="1 of 4 failed; the first: RuntimeError: out of memory on random-1"):
        found = evaluate(gqa, trials(), generate=False, batch_size=2, progress=False)
    assert found.trial_ids == ("random-0", "random-2", "random-3")
    same(found.metrics["logprob"], clean.metrics["logprob"][[0, 2, 3]])
    assert found.answers == tuple(trial.answer for i, trial in enumerate(trials()) if i != 1)


def test_when_every_trial_raises_the_error_is_raised(gqa: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "answer_batch", Counted(fail=tuple(trial.id for trial in trials())))
    with pytest.raises(RuntimeError, match="out of memory on random-0"):
        evaluate(gqa, trials(), generate=False, progress=False)


def test_a_run_folder_resumes(gqa: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean = evaluate(gqa, trials(), max_new_tokens=3, progress=False)
    monkeypatch.setattr(evaluation, "answer_batch", Counted(interrupt="random-2"))
    with pytest.raises(KeyboardInterrupt):
        evaluate(gqa, trials(), max_new_tokens=3, progress=False, out=tmp_path / "run")
    for missing in (["random-2", "random-3"], []):
        monkeypatch.undo()
        counted = Counted()
        monkeypatch.setattr(evaluation, "answer_batch", counted)
        found = evaluate(gqa, trials(), max_new_tokens=3, progress=False, out=tmp_path / "run")
        assert counted.asked == missing
        assert found.texts == clean.texts
        assert found.trial_ids == clean.trial_ids
        for name, values in clean.metrics.items():
            assert torch.equal(found.metrics[name], values)


def test_a_failed_trial_is_tried_again_on_resume(gqa: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "answer_batch", Counted(fail=("random-1",)))
        with pytest.warns(UserWarning, match="1 of 4 failed"):
            evaluate(gqa, trials(), generate=False, progress=False, out=tmp_path / "run")
    counted = Counted()
    monkeypatch.setattr(evaluation, "answer_batch", counted)
    assert len(evaluate(gqa, trials(), generate=False, progress=False, out=tmp_path / "run").trial_ids) == 4
    assert counted.asked == ["random-1"]


def test_a_run_folder_of_other_settings_is_refused(gqa: Any, tmp_path: Path) -> None:
    evaluate(gqa, trials(), generate=False, progress=False, out=tmp_path / "run")
    with pytest.raises(ValueError, match=r"max_new_tokens: None in the folder, 3 now"):
        evaluate(gqa, trials(), max_new_tokens=3, progress=False, out=tmp_path / "run")
    with pytest.raises(ValueError, match="trials: "):
        evaluate(gqa, trials()[:2], generate=False, progress=False, out=tmp_path / "run")


@pytest.mark.parametrize("max_new_tokens", [0, -3])
def test_nothing_to_generate_is_refused(gqa: Any, max_new_tokens: int) -> None:
    with pytest.raises(ValueError, match=f"max_new_tokens={max_new_tokens}: must be a (positive|non-negative) integer"):
        evaluate(gqa, trials(), max_new_tokens=max_new_tokens, progress=False)
    assert evaluate(gqa, trials()[0], generate=False, max_new_tokens=0, progress=False).trial_ids == ("random-0",)


def test_a_plain_model_is_refused() -> None:
    with pytest.raises(TypeError, match=r"LlamaForCausalLM is not a TransformerLens model: load it with lens_heads\."):
        evaluate(plain("llama-gqa"), trials(), progress=False)


def test_a_token_beyond_the_vocabulary_is_refused(gqa: Any) -> None:
    beyond = EncodedTrial([5, zoo.VOCAB], None, "x", [5], "t")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="trial t: tokens contain the id 256, but the model's ids are 0 to 255"):
        evaluate(gqa, [beyond], progress=False)


def test_evaluations_are_equal_to_themselves_alone_and_hash(gqa: Any) -> None:
    one, other = (evaluate(gqa, trials(), generate=False, progress=False) for _ in range(2))
    assert one == one
    assert len({one, other}) == 2


def test_the_judge_decides_and_the_text_stays_whole(gqa: Any) -> None:
    """The same texts, judged twice: by their first character alone, and by a label they hold."""
    plain_texts = evaluate(gqa, trials(), max_new_tokens=5, progress=False).texts
    first = [text.strip()[:1] for text in plain_texts]
    ends = [text.strip()[1:3] for text in plain_texts]
    assert all(ends)
    judged = [
        replace(trial, answer=start, judge=judge_of(cut=(end,), rule="only_label", labels=(start, "no such label")))
        for trial, start, end in zip(trials(), first, ends, strict=True)
    ]
    found = evaluate(gqa, judged, max_new_tokens=5, progress=False)
    assert found.texts == plain_texts
    assert found.metrics["correct"].tolist() == [1.0] * 4
    both = [
        replace(trial, judge=judge_of(rule="only_label", labels=(*trial.judge.labels[:1], "other"))) for trial in judged
    ]
    wrong = [replace(trial, answer="other") for trial in both]
    assert evaluate(gqa, wrong, max_new_tokens=5, progress=False).metrics["correct"].tolist() == [0.0] * 4
    assert evaluate(gqa, trials()[:1], max_new_tokens=5, progress=False).frame.columns.tolist()[-3:] == [
        "correct",
        "logprob",
        "greedy_match",
    ]


def test_results_under_an_ablation_are_never_stored_as_those_without(gqa: Any, tmp_path: Path) -> None:
    """A folder that holds the one would hand it out as the other."""
    options: dict[str, Any] = {"generate": False, "progress": False}
    with lh.ablate(gqa, ["L0H0", "L1H1"], kind="zero"):
        with pytest.raises(ValueError, match=r"has hooks attached .an ablation.., which a run folder cannot identify"):
            evaluate(gqa, trials(), out=tmp_path / "run", **options)
        ablated = evaluate(gqa, trials(), **options).mean("logprob")
    assert not (tmp_path / "run").exists()
    stored = evaluate(gqa, trials(), out=tmp_path / "run", **options).mean("logprob")
    assert stored == evaluate(gqa, trials(), **options).mean("logprob") != ablated
