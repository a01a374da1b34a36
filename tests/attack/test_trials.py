"""Malformed trials, documents, pairs, scorers and controls are refused where they are made, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import lens_heads as lh
from lens_heads.evidence.head_sets import RESERVED
from lens_heads.heads.scores import HeadScores
from lens_heads.ranking.causal.attribution import attribution_patch
from lens_heads.ranking.causal.patching import patch_heads
from lens_heads.trials.documents import EncodedDocuments
from lens_heads.trials.encoded import EncodedTrial
from tests.attack.held import refused
from tests.conftest import random_trial, tiny


def trial(**fields: Any) -> lh.Trial:
    return lh.Trial(**{"id": "t", "question": "Who?", "answer": "Bob", "haystack": "x. y.", "needle": "Bob.", **fields})


def encoded(**fields: Any) -> EncodedTrial:
    return EncodedTrial(
        **{"tokens": [3, 4, 5, 6], "needle": (1, 2), "answer": "x", "answer_tokens": [4], "id": "t", **fields}
    )


def documents(**fields: Any) -> lh.DocumentTrial:
    return lh.DocumentTrial(**{"id": "d", "query": "Who?", "documents": ("one", "two"), "gold": ("1",), **fields})


def spans(**fields: Any) -> EncodedDocuments:
    given = {"tokens": list(range(9)), "null_tokens": list(range(8)), "ask": 6, "documents": ((0, 3), (3, 6))}
    return EncodedDocuments(**{"id": "d", **given, "tags": (1, 1), "gold": (0,), **fields})


def pair(**fields: Any) -> lh.EncodedTrial:
    return lh.EncodedTrial(
        **{
            "tokens": [3, 4],
            "needle": None,
            "answer": "x",
            "answer_tokens": [5],
            "id": "p",
            "corrupt": [3, 6],
            **fields,
        }
    )


TEXTS = [(None, "NoneType"), (3, "int"), (["a"], "list"), (b"a", "bytes"), (float("nan"), "float")]
MADE: list[tuple[str, Callable[..., Any], str]] = [
    *((f"trial {name}", trial, name) for name in ("question", "answer", "haystack", "needle", "template", "group")),
    ("encoded answer", encoded, "answer"),
    ("encoded group", encoded, "group"),
    ("query", documents, "query"),
    ("document group", documents, "group"),
    ("title", lambda title: lh.Document("one", title), "title"),
]


@pytest.mark.parametrize(("value", "kind"), TEXTS, ids=[kind for _, kind in TEXTS])
@pytest.mark.parametrize(("make", "field"), [line[1:] for line in MADE], ids=[line[0] for line in MADE])
def test_a_text(make: Callable[..., Any], field: str, value: Any, kind: str) -> None:
    refused(lambda: make(**{field: value}), f"{field} {value!r} must be a string, not {kind}")


SPANS = [
    (5, "must be a pair of ints"),
    ("12", "must be a pair of ints"),
    ((1,), "must be a pair of ints"),
    ((1, 2, 3), "must be a pair of ints"),
    ((True, 3), "must be a pair of ints"),
    ((0.0, 1.0), "must be a pair of ints"),
    ((None, 3), "must be a pair of ints"),
    (("1", "2"), "must be a pair of ints"),
    ((2, 2), "[2, 2)"),
    ((3, 1), "[3, 1)"),
    ((-1, 2), "[-1, 2)"),
    ((0, 99), "[0, 99)"),
]


@pytest.mark.parametrize(("value", "says"), SPANS, ids=[repr(value) for value, _ in SPANS])
@pytest.mark.parametrize(("make", "field"), [(encoded, "needle"), (encoded, "question")])
def test_a_span(make: Callable[..., Any], field: str, value: Any, says: str) -> None:
    refused(lambda: make(**{field: value}), says)


LINES: list[tuple[str, Callable[[], Any], str]] = [
    ("id null", lambda: trial(id=None), "trial id None must be a string"),
    ("id empty", lambda: trial(id=" "), "trial id ' ' is empty"),
    ("answer blank", lambda: trial(answer=" "), "trial t: the answer is empty"),
    ("alias null", lambda: trial(aliases=[None]), "aliases [None] must be non-empty strings"),
    ("alias empty", lambda: trial(aliases=[""]), "aliases [''] must be non-empty strings"),
    ("alias number", lambda: trial(aliases=3), "aliases 3 must be non-empty strings"),
    ("encoded alias", lambda: encoded(aliases=[1]), "aliases [1] must be non-empty strings"),
    ("meta null", lambda: trial(meta=None), "meta None must be a dictionary, not NoneType"),
    ("meta a list", lambda: encoded(meta=[1]), "meta [1] must be a dictionary, not list"),
    ("judge a text", lambda: trial(judge="exact"), "judge 'exact' must be a Judge"),
    ("judge null", lambda: encoded(judge=None), "judge None must be a Judge"),
    ("chat half", lambda: trial(chat=1.5), "trial t: chat=1.5: must be True or False"),
    ("chat text", lambda: trial(chat="no"), "trial t: chat='no': must be True or False"),
    ("depth nan", lambda: trial(depth=float("nan")), "trial t: depth=nan: must be a finite number from 0 to 1"),
    ("depth true", lambda: trial(depth=True), "depth=True"),
    ("depth text", lambda: trial(depth="0.5"), "depth='0.5'"),
    ("depth beyond", lambda: trial(depth=1.1), "depth=1.1"),
    ("length below 0", lambda: trial(length=-1), "trial t: length=-1: must be a non-negative integer"),
    ("length half", lambda: trial(length=300.5), "length=300.5"),
    (
        "haystack twice",
        lambda: trial(template="{haystack}{haystack}{question}"),
        "template has {haystack} more than once",
    ),
    (
        "question twice",
        lambda: trial(template="{haystack}{question}{question}"),
        "template has {question} more than once",
    ),
    ("no question", lambda: trial(template="{haystack}"), "template has no {question}"),
    ("no haystack", lambda: trial(template="{question}"), "template has no {haystack}"),
    ("choices equal", lambda: trial(choices=("Bob", "Bob")), "must be distinct texts"),
    ("choices but for a space", lambda: trial(choices=("Bob", "Bob ")), "must be distinct texts"),
    ("choices without answer", lambda: trial(choices=("Al", "Ed")), "one of them the answer"),
    ("choices empty", lambda: trial(choices=("Bob", "")), "choices ('Bob', '') must be distinct texts"),
    ("choices null", lambda: trial(choices=("Bob", None)), "must be distinct texts"),
    ("choices a number", lambda: trial(choices=3), "choices (3,) must be distinct texts"),
    ("focus twice", lambda: trial(needle="a a", needle_focus="a"), "must occur once in the needle"),
    ("tokens null", lambda: encoded(tokens=None), "tokens must be a list of token ids, e.g. [11, 42], got None"),
    ("tokens text", lambda: encoded(tokens="abc"), "tokens must be a list of token ids, e.g. [11, 42], got 'abc'"),
    ("tokens half", lambda: encoded(tokens=[1.5, 2.5]), "tokens must be a list of token ids"),
    ("tokens true", lambda: encoded(tokens=[True, False]), "tokens must be a list of token ids"),
    ("tokens ragged", lambda: encoded(tokens=[[1], [2, 3]]), "tokens must be a list of token ids"),
    ("tokens huge", lambda: encoded(tokens=[2**70]), "tokens must be a list of token ids"),
    ("tokens none", lambda: encoded(tokens=[], needle=None), "the prompt has no tokens"),
    ("answer without tokens", lambda: encoded(answer_tokens=[]), "the answer 'x' tokenizes to nothing"),
    ("choices without tokens", lambda: encoded(choices=("x", "y")), "each choice needs its tokens"),
    ("document empty", lambda: documents(documents=("one", " ")), "document 2 is empty"),
    ("document null", lambda: documents(documents=("one", None)), "document 2 None must be a string"),
    ("document number", lambda: documents(documents=(1, 2)), "document 1 1 must be a string"),
    ("text null", lambda: lh.Document(None), "text None must be a string"),  # type: ignore[arg-type]
    ("documents alike", lambda: documents(documents=("one", "one")), "are the same text"),
    ("documents null", lambda: documents(documents=None), "trial d: documents=None: must be a list"),
    ("documents a number", lambda: documents(documents=3), "trial d: documents=3: must be a list"),
    ("documents none", lambda: documents(documents=()), "has no documents"),
    ("query empty", lambda: documents(query=""), "the query is empty"),
    ("gold true", lambda: documents(gold=True), "gold True must be ids of documents"),
    ("gold list of true", lambda: documents(gold=[True]), "must be ids of documents"),
    ("gold null", lambda: documents(gold=None), "gold None must be ids of documents"),
    ("gold beyond", lambda: documents(gold=3), "there is no document '3'"),
    ("gold half", lambda: documents(gold=1.0), "gold 1.0 must be ids of documents"),
    ("gold none", lambda: documents(gold=()), "has no gold document"),
    ("shuffle", lambda: documents().shuffled(-1), "seed=-1: must be a non-negative integer"),
    ("gold index beyond", lambda: spans(gold=(2,)), "gold=2: must be an integer from 0 to 1, the index of a document"),
    ("gold index below", lambda: spans(gold=(-1,)), "gold=-1: must be an integer from 0 to 1"),
    ("gold index true", lambda: spans(gold=(True,)), "gold=True: must be an integer"),
    ("gold index twice", lambda: spans(gold=(0, 0)), "lists a document twice"),
    ("ask beyond", lambda: spans(ask=8), "ask=8: must be an integer from 1 to 7"),
    ("document beyond ask", lambda: spans(documents=((0, 3), (3, 7))), "the document 1 [3, 7) lies outside"),
    ("tags missing", lambda: spans(tags=(1,)), "2 documents and 1 tags"),
    ("spans none", lambda: spans(documents=(), tags=(), gold=()), "0 documents and 0 tags"),
    ("no gold index", lambda: lh.score_documents(MODEL(), spans(gold=())), "trial d has no gold document"),
    (
        "pair lengths",
        lambda: lh.patch_heads(MODEL(), pair(corrupt=[3])),
        "the corrupt prompt has 1 tokens and the clean one 2",
    ),
    ("a corrupt text", lambda: pair(corrupt="no"), "corrupt must be a list of token ids"),
    ("a wrong answer", lambda: pair(wrong=[5, 1]), "must begin with another token than the answer"),
    ("filler as a needle", lambda: patch(fillers()), "corruption remove leaves the prompt as it is"),
    (
        "attributed",
        lambda: attribution_patch(MODEL(), random_trial(0), corruption=unchanged, positions="all"),
        "every head would score 0",
    ),
    (
        "corruption without change",
        lambda: patch(corruption=unchanged),
        "corruption unchanged leaves the prompt",
    ),
    (
        "corruption of None",
        lambda: patch(corruption=nothing),
        "the corrupt prompt of nothing must be a list of token ids",
    ),
    ("corruption number", lambda: patch(corruption=3), "corruption=3: must be a name, a function or None"),
    ("corruption shorter", lambda: patch(corruption=shorter), "the corrupt prompt has 23 tokens and the clean one 24"),
    ("two trials of one id", lambda: score([random_trial(0), random_trial(0)]), "two trials have the id 'random-0'"),
    ("two scorers of one name", lambda: score(methods=[scorer(), scorer()]), "two scorers are called 'mine'"),
    ("the name of ours", lambda: score(methods=["locos", scorer("locos")]), "two scorers are called 'locos'"),
    ("scorer without name", lambda: scorer(""), "scorer name '': must be a non-empty string"),
    ("scorer null", lambda: scorer(None), "scorer name None: must be a non-empty string"),
    ("scorer no function", lambda: lh.Scorer("mine", 3), "scorer mine: 3 must be a function"),  # type: ignore[arg-type]
    *(
        (f"scorer {name}", lambda name=name, value=value: lh.Scorer("mine", ones, **{name: value}), f"{name}={value!r}")
        for name, value in {
            **dict.fromkeys(("gated", "signed", "contrastive", "reads_needle", "within_layers", "only_named"), 1),
            **dict.fromkeys(("paper", "rule", "fails", "needs", "reads"), 5),
            **{"prompt_rows": 0, "after_copy": "x", "counted": None, "direction": "raw", "probe": 3},
        }.items()
    ),
    ("controls null", lambda: lh.Controls(None), "names=None: must be a list of texts or text"),  # type: ignore[arg-type]
    ("controls of numbers", lambda: lh.Controls([1]), "names=[1]: must be a list of texts or text"),  # type: ignore[list-item]
    ("controls of true", lambda: lh.Controls(of=True), "of=True: must be"),  # type: ignore[arg-type]
    ("scorer rows", lambda: lh.Scorer("mine", ones, rows="all"), "rows='all': use one of"),  # type: ignore[arg-type]
]


def MODEL() -> Any:
    return tiny("llama-gqa")


def ones(view: Any) -> torch.Tensor:
    return torch.ones(4)


def scorer(name: Any = "mine") -> lh.Scorer:
    return lh.Scorer(name, lambda view: torch.ones(4))


def unchanged(given: EncodedTrial) -> torch.Tensor:
    return given.tokens


def fillers() -> EncodedTrial:
    """A trial whose needle already is what "remove" puts in its place."""
    from lens_heads.trials.pairs import FILLER
    from lens_heads.trials.tokenizing import piece

    whole = random_trial(0)
    tokens = whole.tokens.clone()
    tokens[7:11] = piece(MODEL().tokenizer, FILLER)[0]
    return replace(whole, tokens=tokens)


def nothing(given: EncodedTrial) -> Any:
    return None


def shorter(given: EncodedTrial) -> torch.Tensor:
    return given.tokens[1:]


def score(trials: Any = None, methods: Any = "locos") -> Any:
    given = [random_trial(0)] if trials is None else trials
    return lh.score_heads(MODEL(), given, methods, teacher_forced=True, progress=False)


def patch(pairs: Any = None, **options: Any) -> Any:
    return patch_heads(MODEL(), random_trial(0) if pairs is None else pairs, progress=False, **options)


@pytest.mark.parametrize(("run", "says"), [line[1:] for line in LINES], ids=[line[0] for line in LINES])
def test_what_is_malformed(run: Callable[[], Any], says: str) -> None:
    refused(run, says, MODEL())


@pytest.mark.parametrize("name", [*RESERVED, "", None, 3])
@pytest.mark.parametrize("what", ["a ranking", "a set of heads"])
def test_a_name_of_a_control(name: Any, what: str) -> None:
    ranking = HeadScores.from_trials("m", torch.rand(2, 3, 4), ["a", "b"])
    rankings, sets = ({name: ranking}, None) if what == "a ranking" else (ranking, {name: ["L0H0"]})
    run: dict[str, Any] = {"ks": 1, "kind": "zero", "sets": sets, "generate": False, "progress": False}
    refused(
        lambda: lh.ablation_curve(MODEL(), [random_trial(0)], rankings, **run), f"{what} is called {name!r}", MODEL()
    )


RIGHT: list[tuple[str, Callable[[], Any], Any]] = [
    ("one alias", lambda: trial(aliases="Robert").aliases, ("Robert",)),
    ("one alias in tokens", lambda: encoded(aliases="Robert").aliases, ("Robert",)),
    ("a list of aliases", lambda: trial(aliases=["a", "b"]).aliases, ("a", "b")),
    ("whole depth", lambda: trial(depth=1).depth, 1),
    ("a list as a span", lambda: encoded(needle=[1, 2]).needle, (1, 2)),
    ("a tensor as a span", lambda: encoded(needle=torch.tensor([1, 2])).needle, (1, 2)),
    ("no needle", lambda: encoded(needle=None).needle, None),
    ("a number as gold", lambda: documents(gold=2).gold, ("2",)),
    ("one document", lambda: documents(documents="one", gold="1").documents[0].text, "one"),
    ("gold twice", lambda: documents(gold=("1", 1)).gold, ("1",)),
    ("a method twice", lambda: list(score(methods=["locos", "locos"])), ["locos"]),
    ("bottom without draws", lambda: lh.Controls(("bottom", "random"), draws=0).draws, 0),
]


@pytest.mark.parametrize(("run", "right"), [line[1:] for line in RIGHT], ids=[line[0] for line in RIGHT])
def test_what_is_in_order(run: Callable[[], Any], right: Any) -> None:
    assert run() == right


def test_one_alias_accepts_no_single_letters() -> None:
    from lens_heads.trials.metrics import text_scores

    one = replace(encoded(), answer="Bob", aliases="Robert")  # type: ignore[arg-type]
    assert text_scores("o", (one.answer, *one.aliases))["contains"] == 0


@pytest.mark.parametrize(
    ("words", "length", "says"),
    [
        (3_000, 5_000, "a length of 5000 tokens exceeds the context window of 512 tokens: use a smaller"),
        (3_000, 0, "its whole haystack exceeds the context window of 512 tokens"),
        (3_000, 400, ""),
        (50, 5_000, ""),
    ],
)
def test_a_context_beyond_the_model_is_refused_before_it_is_composed(
    words: int, length: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, model = trial(haystack="a " * words, length=length), tiny("llama-gqa")
    if not says:
        assert len(lh.evaluate(model, made, generate=False, progress=False).trial_ids) == 1
        return
    monkeypatch.setattr(lh.Trial, "encode", lambda *_: pytest.fail("the prompt was composed"))
    refused(lambda: lh.evaluate(model, made, generate=False, progress=False), says, model)
