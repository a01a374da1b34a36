"""BABILong: every packaged answer is recomputed from its story by a simulator; rows, prose and faults."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pytest

from lens_heads.tasks import prose
from lens_heads.tasks.babilong import CHARACTERS_PER_TOKEN, babilong, spread
from lens_heads.tasks.templates import judge as template_judge
from lens_heads.tasks.templates import template
from tests import zoo

DATA = Path(prose.__file__).parent / "data"
EVERY = [json.loads(line) for line in (DATA / "packaged" / "babilong.jsonl").read_text(encoding="ascii").splitlines()]
SHOTS = template("babilong")
MOVES = "strolled into|hurried off to|made for|slipped into|climbed up to|wandered over to|turned up in"


class World:
    """Who is where, who holds what, where things lie, and where each thing has been."""

    def __init__(self) -> None:
        self.at: dict[str, str] = {}
        self.holder: dict[str, str] = {}
        self.lies: dict[str, str] = {}
        self.been: dict[str, list[str]] = {}

    def read(self, sentence: str) -> None:
        """Carry out one sentence; ValueError for one that is not understood or cannot be."""
        if found := re.fullmatch(rf"(?:Then )?(\w+) (?:{MOVES}) the (\w+)\.", sentence):
            person, room = found.groups()
            self.at[person] = room
            for thing, holder in self.holder.items():
                if holder == person:
                    self.been[thing].append(room)
        elif found := re.fullmatch(
            r"(\w+) (?:scooped up|tucked|lifted|laid hands on) the (\w+)(?: under one arm| off the floor)?\.", sentence
        ):
            person, thing = found.groups()
            if thing in self.holder or self.lies.get(thing, self.at[person]) != self.at[person]:
                raise ValueError(f"{person} cannot take it: {sentence}")
            self.holder[thing] = person
            self.lies.pop(thing, None)
            self.been.setdefault(thing, [self.at[person]])
        elif found := re.fullmatch(
            r"(\w+) (?:set down|parted with|propped) the (\w+)(?: against the wall)?\.", sentence
        ):
            person, thing = found.groups()
            if self.holder.pop(thing, None) != person:
                raise ValueError(f"{person} does not hold it: {sentence}")
            self.lies[thing] = self.at[person]
        elif found := re.fullmatch(r"(\w+) (?:entrusted|pressed) the (\w+) (?:to|into the hands of) (\w+)\.", sentence):
            person, thing, other = found.groups()
            if self.holder.get(thing) != person or self.at[person] != self.at[other]:
                raise ValueError(f"{person} cannot hand it over: {sentence}")
            self.holder[thing] = other
        elif not re.fullmatch(r"\w+ (?:hummed an old tune|yawned twice|sneezed|tied a loose shoelace)\.", sentence):
            raise ValueError(f"not understood: {sentence}")

    def answer(self, question: str) -> str:
        """The one answer there is."""
        if found := re.fullmatch(r"Which room is ([A-Z]\w+) in now\?", question):
            return self.at[found[1]]
        if found := re.fullmatch(r"Which room is the (\w+) in now\?", question):
            thing = found[1]
            return self.lies[thing] if thing in self.lies else self.at[self.holder[thing]]
        found = re.fullmatch(r"Which room was the (\w+) in just before it came to the (\w+)\?", question)
        assert found, question
        been = self.been[found[1]]
        assert been.count(found[2]) == 1, "when it came there is not clear"
        assert been[-1] == found[2]
        return been[-2]


def simulate(story: str, question: str) -> str:
    world = World()
    for sentence in re.split(r"(?<=\.) ", story):
        world.read(sentence)
    return world.answer(question)


@pytest.mark.slow
@pytest.mark.parametrize("row", EVERY, ids=[row["id"] for row in EVERY])
def test_every_answer_follows_from_its_story(row: dict[str, Any]) -> None:
    assert simulate(row["input"], row["question"]) == row["target"]
    assert row["target"] in SHOTS["packaged"][row["task"]]["labels"]
    assert row["target"] not in row["question"]


def test_the_simulator_notices_a_wrong_story() -> None:
    """It can fail: a story with one sentence gone, or two exchanged, has another answer or none."""
    story = "Oda made for the attic. Oda scooped up the globe. Oda slipped into the chapel. Oda set down the globe."
    question = "Which room is the globe in now?"
    assert simulate(story, question) == "chapel"
    assert simulate(story.replace(" Oda slipped into the chapel.", ""), question) == "attic"
    with pytest.raises(ValueError, match="does not hold it"):
        simulate(story.replace(" Oda scooped up the globe.", ""), question)
    with pytest.raises(ValueError, match="not understood: Oda flew"):
        simulate("Oda flew to the attic.", question)


def test_examples_in_the_packaged_templates_are_right() -> None:
    for kind in SHOTS["packaged"].values():
        shown = re.findall(r"Story: (.+)\nQuestion: (.+)\nAnswer: (\w+)\n", kind["template"])
        assert len(shown) == 3
        assert [simulate(story, question) for story, question, _ in shown] == [answer for *_, answer in shown]


def test_examples_for_the_hub_are_of_its_labels() -> None:
    assert list(SHOTS["hub"]) == [f"qa{i}" for i in range(1, 11)]
    for kind in SHOTS["hub"].values():
        shown = re.findall(r"\nAnswer: (.+)\n", kind["template"])
        assert len(shown) == 2
        assert {part for answer in shown for part in answer.split(",")} <= set(kind["labels"])


def test_no_answer_can_be_guessed() -> None:
    """Rooms are the answer equally often; neither the first nor the last one named is it in most stories."""
    assert len({row["input"] for row in EVERY}) == len({row["id"] for row in EVERY}) == 120
    for task in ("qa1", "qa2", "qa3"):
        mine = [row for row in EVERY if row["task"] == task]
        labels = SHOTS["packaged"][task]["labels"]
        assert Counter(row["target"] for row in mine) == dict.fromkeys(labels, 5)
        for end in (0, -1):
            guesses = [
                [room for room in re.findall("|".join(labels), row["input"]) if room not in row["question"]][end]
                for row in mine
            ]
            assert sum(guess == row["target"] for guess, row in zip(guesses, mine, strict=True)) <= 0.35 * len(mine)


def test_labels_are_told_apart_and_not_in_the_prose() -> None:
    labels = SHOTS["packaged"]["qa1"]["labels"]
    assert not any(one in other for one in labels for other in labels if one != other)
    text = prose.haystack(words=45_000).lower()
    things = {thing for row in EVERY for thing in re.findall(r"(?:up|tucked|lifted|hands on) the (\w+)", row["input"])}
    people = {name.lower() for row in EVERY for name in re.findall(r"(?:^|\. |Then )([A-Z]\w+) ", row["input"])} - {
        "then"
    }
    assert len(things) == 8
    assert len(people) == 10
    assert not [word for word in (*labels, *things, *people) if re.search(rf"\b{word}\b", text)]


def test_a_packaged_trial_is_its_row() -> None:
    trials = {trial.id: trial for trial in babilong(task="qa3")}
    assert len(trials) == 40
    for row in (row for row in EVERY if row["task"] == "qa3"):
        trial = trials[f"babilong-{row['id']}"]
        assert (trial.haystack, trial.question, trial.answer) == (row["input"], row["question"], row["target"])
        asked = {label for label in SHOTS["packaged"]["qa3"]["labels"] if label in row["question"]}
        assert set(trial.judge.labels) == set(SHOTS["packaged"]["qa3"]["labels"]) - asked
        assert len(asked) == 1
        assert trial.judge.correct(f" {row['target']}. {asked}", [trial.answer]) == 1
        others = trial.judge.labels[0], trial.judge.labels[1]
        assert trial.judge.correct(" ".join(others), [trial.answer]) == 0
    text = zoo.tokenizer().decode(trials["babilong-qa3-01"].encode(zoo.tokenizer()).tokens)
    assert text.endswith(f"\n\nStory: {EVERY[80]['input']}\nQuestion: {EVERY[80]['question']}\nAnswer:")


def test_a_draw_is_fixed_by_its_seed() -> None:
    assert babilong(n=5, seed=2, context_length=200) == babilong(n=5, seed=2, context_length=200)
    assert {t.id for t in babilong(n=5, seed=2)} != {t.id for t in babilong(n=5, seed=3)}


@pytest.mark.parametrize("context_length", [100, 1_000, 30_000])
def test_the_story_stays_in_order_among_prose(context_length: int) -> None:
    plain = {trial.id: trial.haystack for trial in babilong(n=3)}
    for trial in babilong(n=3, context_length=context_length):
        story = plain[trial.id.removesuffix(f"-{context_length}")]
        facts = re.split(r"(?<=\.) ", story)
        found = [f for f in re.split(r'(?<=[.?!]) (?=["A-Z])|(?<=[.?!]") (?=["A-Z])', trial.haystack) if f in facts]
        assert found == facts
        assert simulate(" ".join(found), trial.question) == trial.answer
        wanted = context_length * CHARACTERS_PER_TOKEN
        assert wanted - 250 < len(trial.haystack) <= max(wanted, len(story))


def test_the_story_is_spread_evenly() -> None:
    rng = random.Random(0)
    places = []
    for _ in range(200):
        text = spread("Oda yawned twice. Ivo sneezed.", 3_000, rng)
        places.append(text.index("Ivo sneezed.") / len(text))
    assert sum(places) / len(places) == pytest.approx(2 / 3, abs=0.05)  # The later of two random places.


HUB_ROWS = [
    {"input": "Mary took the milk. Mary went home.", "question": "Where is the milk? ", "target": "kitchen"},
    {"input": "John is in the garden.", "question": "Where was John before the garden?", "target": "office"},
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text(json.dumps(rows) if file.suffix == ".json" else "\n".join(json.dumps(row) for row in rows))
    return file


@pytest.mark.parametrize("name", ["4k.json", "4k.jsonl"])
def test_a_local_copy(tmp_path: Path, name: str) -> None:
    trials = {
        trial.id: trial for trial in babilong("hub", task="qa2", config="4k", path=write(tmp_path / name, HUB_ROWS))
    }
    assert set(trials) == {"babilong-qa2-4k-1", "babilong-qa2-4k-2"}
    trial = trials["babilong-qa2-4k-2"]
    assert set(trial.judge.labels) == {"bathroom", "bedroom", "hallway", "kitchen", "office"}
    assert trial.judge.correct("After the garden he was in the OFFICE. Then the kitchen", [trial.answer]) == 1
    assert trial.meta == {"kind": "qa2", "task": "qa2", "source": "hub", "context_length": 0}


def test_several_answers_of_a_row(tmp_path: Path) -> None:
    rows = [{"input": "Story.", "question": "What is Mary carrying?", "target": "milk,apple"}]
    trial = babilong("hub", task="qa8", path=write(tmp_path / "0k.json", rows))[0]
    assert [trial.judge.correct(text, [trial.answer]) for text in ("apple,milk", "milk", "nothing")] == [1, 0, 0]


def test_the_hub_is_asked_for_config_and_task(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: asked.append((args, kwargs)) or HUB_ROWS)
    assert len(babilong("hub", task="qa3", config="16k", n=2)) == 2
    assert asked == [(("RMT-team/babilong", "16k"), {"split": "qa3"})]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"input": "", "question": "q", "target": "kitchen"},
            r"0k.json, row 1: field 'input' is missing or empty; it must contain",
        ),
        ({"input": "s", "question": "q"}, r"row 1: field 'target' is missing"),
        (
            {"input": "s", "question": "q", "target": "yes"},
            r"row 1: field 'target' is 'yes', but 'yes' is not an answer of qa2",
        ),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        babilong("hub", task="qa2", path=write(tmp_path / "0k.json", [row]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": "web"}, "unknown source 'web': use 'packaged' or 'hub'"),
        ({"task": "qa4"}, "unknown packaged task 'qa4': use 'qa1', 'qa2' or 'qa3'"),
        ({"source": "hub", "task": "qa11"}, "unknown hub task 'qa11': use 'qa1', .* or 'qa10'"),
        ({"config": "1k"}, "config= require source='hub'"),
        ({"path": "x"}, "path= and config= require source='hub'"),
        ({"source": "hub", "context_length": 9}, "context_length= requires source='packaged'"),
        ({"context_length": -1}, "context_length=-1"),
        ({"n": 41}, "n=41 is out of range: there are 40 rows in the packaged qa2"),
    ],
)
def test_other_faults_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        babilong(**arguments)


def their_verdict(target: str, output: str, question: str, labels: list[str]) -> bool:
    """The benchmark's rule, written from its description: the first sentence names the target and no other label."""
    first = output.lower()
    for end in (".", "<context>", "<example>"):
        first = first[: first.index(end)] if end in first else first
    named = {label.lower() for label in labels if label.lower() in first}
    named -= {label.lower() for label in labels if label.lower() in question.lower()}
    return named == (set(target.lower().split(",")) if "," in target else {target.lower()})


SAID = [
    *(
        "garden",
        "The answer to the question is garden. Not the kitchen.",
        "garden or kitchen",
        "GARDEN <example> kitchen",
    ),
    *(
        "Question: garden",
        "Bill gave it to Fred",
        "fred",
        "milk,apple",
        "apple, milk and football",
        "apple",
        "no",
        "yes",
    ),
    *("I do not know; yes", "none", "one", "two.", "nothing", "maybe", "", "<context>garden"),
]


def test_judging_is_the_benchmarks() -> None:
    questions = [
        "Where is Mary?",
        "Is Mary in the garden?",
        "What did Fred give to Bill?",
        "Is the milk in the kitchen?",
    ]
    tried = 0
    for kind in SHOTS["hub"].values():
        for question in questions:
            if all(label.lower() in question.lower() for label in kind["labels"]):
                continue
            # Without the cut at "question", which their code means but does not make.
            judge = template_judge(SHOTS, labels=kind["labels"], cut=(".", "<context>", "<example>")).without(question)
            for target in [*kind["labels"], "apple,milk"]:
                for said in SAID:
                    expected = their_verdict(target, said, question, kind["labels"])
                    assert judge.correct(said, [target]) == expected, (target, said, question)
                    tried += expected
    assert tried > 50


def test_none_is_right_only_with_whole_words() -> None:
    """To the benchmark's code, "none" names "one" too."""
    labels = SHOTS["hub"]["qa7"]["labels"]
    assert not their_verdict("none", "none", "How many?", labels)
    assert template_judge(SHOTS, labels=labels).correct("none.", ["none"]) == 0
    whole = template_judge(SHOTS, labels=labels, whole_words=True)
    assert [whole.correct(said, ["none"]) for said in ("none.", "None at all", "one", "none or one")] == [1, 1, 0, 0]
    assert babilong(task="qa1", n=1, whole_words=True)[0].judge == replace(
        babilong(task="qa1", n=1)[0].judge, whole_words=True
    )
