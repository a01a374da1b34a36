"""Tasks: functions that return trials. `TASKS` is the written-out table of them, by the names the command line uses."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from lens_heads.tasks.arithmetic import arithmetic
from lens_heads.tasks.babilong import babilong
from lens_heads.tasks.capitals import capitals
from lens_heads.tasks.code import humaneval, mbpp
from lens_heads.tasks.continuation import continuation
from lens_heads.tasks.gsm8k import gsm8k
from lens_heads.tasks.induction import induction
from lens_heads.tasks.ioi import ioi
from lens_heads.tasks.multiple_choice import arc_challenge, boolq, hellaswag, mmlu, wmdp
from lens_heads.tasks.musique import musique
from lens_heads.tasks.niah import niah
from lens_heads.tasks.nolima import nolima
from lens_heads.tasks.packaged import packaged
from lens_heads.tasks.parametric import parametric
from lens_heads.tasks.qrhead import qrhead
from lens_heads.tasks.rhyme import rhyme
from lens_heads.tasks.sec10k import sec10k, sec10k_documents
from lens_heads.tasks.swearing import swearing
from lens_heads.trials.documents import DocumentTrial
from lens_heads.trials.trial import Trial


class Task(NamedTuple):
    """A function that makes trials, of one document or of many, and what they are about in one line."""

    trials: Callable[..., list[Trial] | list[DocumentTrial]]
    about: str


TASKS: dict[str, Task] = {
    "packaged": Task(packaged, "needles in made-up prose, shipped: no download, short, for small models too"),
    "nolima": Task(nolima, "needles whose question shares no word with them, in books; or your own in the same format"),
    "niah": Task(niah, "needle in a haystack from a folder in the format of the retrieval-head paper"),
    "musique": Task(
        musique, "questions that take facts from two or three paragraphs: made-up ones shipped, or MuSiQue"
    ),
    "babilong": Task(babilong, "who carried what where, in a story or in a story among prose: shipped, or BABILong"),
    "parametric": Task(parametric, "facts known from training (city -> country, PopQA): no needle, to be spared"),
    "arithmetic": Task(arithmetic, "sums and differences, generated or GPT-3's: no needle, to be spared"),
    "capitals": Task(capitals, "country -> capital, known from training: no needle, with choices"),
    "induction": Task(induction, "a list of words comes again, which one is next: copying, with choices"),
    "rhyme": Task(rhyme, "a word that rhymes with another: no needle, with choices"),
    "continuation": Task(continuation, "which of four endings makes sense: everyday situations, shipped, with choices"),
    "sec10k": Task(sec10k, "eight facts from companies' annual reports: made-up ones shipped, or real ones of yours"),
    "sec10k_documents": Task(
        sec10k_documents, "the same over whole reports in chunks: trials of documents, to detect heads"
    ),
    "hellaswag": Task(hellaswag, "multiple choice: how a description goes on, from the hub or a copy"),
    "boolq": Task(boolq, "multiple choice: yes or no, by a passage, from the hub or a copy"),
    "arc_challenge": Task(arc_challenge, "multiple choice: science at school, from the hub or a copy"),
    "mmlu": Task(mmlu, "multiple choice by letter: knowledge of 57 subjects, from the hub or a copy"),
    "wmdp": Task(wmdp, "multiple choice by letter: knowledge that helps to do harm, from the hub or a copy"),
    "ioi": Task(ioi, "who is given it, the indirect object or the subject: TransformerLens's sentences, no download"),
    "qrhead": Task(qrhead, "questions over documents in QRHead's format: from the hub, or files of yours"),
    "gsm8k": Task(gsm8k, "GSM8K's word problems, judged by the final number of a worked solution, or of a bare answer"),
    "mbpp": Task(mbpp, "MBPP's short Python functions: log-probability, or judged by running their tests"),
    "humaneval": Task(humaneval, "HumanEval's Python functions to go on with: the same"),
    "swearing": Task(swearing, "scenes in which people swear, judged by a list of words of yours"),
}


HALVES = (
    *("packaged", "musique", "sec10k", "sec10k_documents", "arithmetic", "capitals", "induction", "rhyme"),
    *("continuation", "ioi", "swearing"),
)
"""Tasks with `split`: "select" to find heads, "test" to evaluate them, two halves that share nothing."""


def to_select(name: str) -> dict[str, str]:
    """The argument that leaves a half of a task to evaluate heads on, where it has halves."""
    return {"split": "select"} if name in HALVES else {}


def arguments_of(name: str) -> Mapping[str, inspect.Parameter]:
    """The arguments of a task by name."""
    return inspect.signature(TASKS[name].trials).parameters


def load(name: str, **arguments: Any) -> list[Any]:
    """The trials of a task by name. ValueError for an unknown task or argument, naming the nearest or all there are."""
    if name not in TASKS:
        close = difflib.get_close_matches(name, TASKS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"unknown task {name!r}: {hint}the tasks are {', '.join(TASKS)}")
    known = arguments_of(name)
    missing = [p.name for p in known.values() if p.default is p.empty and p.name not in arguments]
    wrong = sorted(arguments.keys() - known.keys())
    if wrong or missing:
        what = f"has no argument {wrong[0]!r}" if wrong else f"needs {missing[0]}=..."
        raise ValueError(f"task {name!r} {what}: it takes {', '.join(known)}")
    return TASKS[name].trials(**arguments)


__all__ = [
    "HALVES",
    "TASKS",
    "Task",
    "arc_challenge",
    "arithmetic",
    "babilong",
    "boolq",
    "capitals",
    "continuation",
    "gsm8k",
    "hellaswag",
    "humaneval",
    "induction",
    "ioi",
    "load",
    "mbpp",
    "mmlu",
    "musique",
    "niah",
    "nolima",
    "packaged",
    "parametric",
    "qrhead",
    "rhyme",
    "sec10k",
    "sec10k_documents",
    "swearing",
    "to_select",
    "wmdp",
]
