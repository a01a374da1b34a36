"""Tasks: functions that return trials. `TASKS` registers them under the names the command line uses.

Knows neither models nor heads; trials are texts until they meet a tokenizer.

What the tasks have in common is described here; their own docstrings say what else there is to know.

Arguments:
    n: number of trials, drawn at random; None for all, or for the usual number that the docstring gives.
    seed: random seed for everything drawn: the same arguments make the same trials.
    split: "select" for finding heads, "test" for evaluating them, None for both. The two share no trial and no group.
        For benchmarks, which are split already, a split of the hub's.
    source: where the data is from: shipped with the package ("packaged"), the hub ("hub"), ..
    path: a local copy of the hub's rows (with `source="hub"`, if there are sources): a file or a folder of .jsonl, .json,
        .csv, .tsv or .parquet with the hub's fields.
    lengths: prompt lengths in tokens; a list, or how many to space evenly over 1,000..50,000.
    depths: needle depths from 0 (start) to 1 (end); a list, or how many to space evenly.
    chat: whether to use the chat template, see `Trial`. Mostly False by default even for chat models, since the prompt is
        text to continue.

Trials have readable ids that are unique within a task; `meta` holds what to group results by, first of all the `kind`.
Trials of one `group` (a company, a needle, a name) share what their answers depend on; trials that share nothing have no
group, which matches no other. Unless the docstring says otherwise there is no needle and no haystack.

Errors: ValueError for an unknown name, arguments that exclude each other, and an `n` out of range; FileNotFoundError or
ValueError for missing or faulty data, which they name (file, row and field); ImportError for a package to install.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from lens_heads.runs.typed import typed
from lens_heads.tasks.arithmetic import arithmetic
from lens_heads.tasks.babilong import babilong
from lens_heads.tasks.capitals import capitals
from lens_heads.tasks.code import humaneval, mbpp
from lens_heads.tasks.colored_objects import colored_objects
from lens_heads.tasks.continuation import continuation
from lens_heads.tasks.copy_colors import copy_colors
from lens_heads.tasks.greater_than import greater_than
from lens_heads.tasks.gsm8k import gsm8k
from lens_heads.tasks.induction import induction
from lens_heads.tasks.ioi import ioi
from lens_heads.tasks.key_value import key_value
from lens_heads.tasks.multiple_choice import arc_challenge, boolq, hellaswag, mmlu, wmdp
from lens_heads.tasks.musique import musique
from lens_heads.tasks.niah import niah
from lens_heads.tasks.nolima import nolima
from lens_heads.tasks.packaged import packaged
from lens_heads.tasks.parametric import parametric
from lens_heads.tasks.qrhead import qrhead
from lens_heads.tasks.rhyme import rhyme
from lens_heads.tasks.sec10k import sec10k, sec10k_documents
from lens_heads.tasks.succession import succession
from lens_heads.tasks.swearing import swearing
from lens_heads.tasks.word_pairs import word_pairs
from lens_heads.trials.documents import DocumentTrial
from lens_heads.trials.exchanges import add_distractors, exchange_questions
from lens_heads.trials.trial import Trial


class Task(NamedTuple):
    """A function that returns trials (or document trials), with a one-line description.

    `about`: that description.

    Example:
        >>> lh.tasks.TASKS["capitals"].about
        'country -> capital, known from training: no needle, with answer choices'
    """

    trials: Callable[..., list[Trial] | list[DocumentTrial]]
    about: str


TASKS: dict[str, Task] = {
    "packaged": Task(packaged, "needles in synthetic prose, shipped: no download, and short enough for small models"),
    "nolima": Task(nolima, "NoLiMa: needles in books, with questions that share no word with them; or your own files"),
    "niah": Task(niah, "needle in a haystack, from a folder in the format of the retrieval-head paper"),
    "musique": Task(musique, "questions that combine facts from several paragraphs: synthetic and shipped, or MuSiQue"),
    "babilong": Task(babilong, "who carried what where, in a story alone or amid prose: shipped, or BABILong"),
    "parametric": Task(parametric, "facts known from training, as city -> country: no needle; a control for ablation"),
    "arithmetic": Task(arithmetic, "sums and differences, generated or GPT-3's: no needle; a control for ablation"),
    "capitals": Task(capitals, "country -> capital, known from training: no needle, with answer choices"),
    "induction": Task(induction, "the next word of a repeated word list: copying, with answer choices"),
    "key_value": Task(key_value, "which value a random key has in a JSON object: copying without meaning"),
    "colored_objects": Task(colored_objects, "the colour of one of three objects: with answer choices"),
    "copy_colors": Task(copy_colors, "the letter of an object's colour among lettered choices"),
    "greater_than": Task(greater_than, "a year after the one at which something began: with two choices"),
    "succession": Task(succession, "the next day, month, letter or number: with answer choices"),
    "word_pairs": Task(word_pairs, "antonyms, past tenses or capitals, shown by examples alone: true or shuffled ones"),
    "rhyme": Task(rhyme, "a word that rhymes with a given one: no needle, with answer choices"),
    "continuation": Task(continuation, "which of four endings fits an everyday situation: with answer choices"),
    "sec10k": Task(sec10k, "eight facts from companies' annual reports: fictional ones shipped, or your own real ones"),
    "sec10k_documents": Task(sec10k_documents, "the same, over whole reports in chunks: document trials"),
    "hellaswag": Task(hellaswag, "multiple choice: how a description continues; from the hub or a local copy"),
    "boolq": Task(boolq, "multiple choice: yes or no, given a passage; from the hub or a local copy"),
    "arc_challenge": Task(arc_challenge, "multiple choice: grade-school science; from the hub or a local copy"),
    "mmlu": Task(mmlu, "multiple choice by letter: knowledge of 57 subjects; from the hub or a local copy"),
    "wmdp": Task(wmdp, "multiple choice by letter: hazardous knowledge; from the hub or a local copy"),
    "ioi": Task(ioi, "indirect object identification with TransformerLens's sentences: no download"),
    "qrhead": Task(qrhead, "questions over documents in QRHead's format: from the hub, or your own files"),
    "gsm8k": Task(gsm8k, "GSM8K's word problems, judged by the final number of a worked solution or of a bare answer"),
    "mbpp": Task(mbpp, "MBPP's short Python functions: scored by log-probability, or judged by running their tests"),
    "humaneval": Task(humaneval, "HumanEval's Python functions to complete: scored or judged as mbpp is"),
    "swearing": Task(swearing, "scenes in which people swear, judged by your own word list"),
}


HALVES = (
    *("packaged", "musique", "sec10k", "sec10k_documents", "arithmetic", "capitals", "induction", "rhyme"),
    *("continuation", "ioi", "swearing", "key_value", "colored_objects", "copy_colors", "succession", "word_pairs"),
    "greater_than",
)
"""Tasks with two disjoint splits: "select" to find heads, "test" to evaluate them."""
OF_DOCUMENTS = ("sec10k_documents", "qrhead")
"""Tasks of document trials, which have no answers."""


@typed
def to_select(name: str) -> dict[str, str]:
    """The argument that holds out half of a task for evaluating heads; empty for a task without halves.

    Example:
        >>> lh.tasks.to_select("ioi"), lh.tasks.to_select("hellaswag")
        ({'split': 'select'}, {})
    """
    return {"split": "select"} if name in HALVES else {}


def arguments_of(name: str) -> Mapping[str, inspect.Parameter]:
    """The parameters of the task called `name`."""
    return inspect.signature(TASKS[name].trials).parameters


@typed
def load(name: str, **arguments: Any) -> list[Any]:
    """The trials of the task called `name`.

    ValueError for an unknown task or argument; it lists the known ones and suggests the closest task name.

    Example:
        >>> (trial,) = lh.tasks.load("capitals", n=1)
        >>> trial.answer
        'Beijing'
    """
    if name not in TASKS:
        close = difflib.get_close_matches(name, TASKS, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"unknown task {name!r}{hint}: use one of {', '.join(TASKS)}")
    known = arguments_of(name)
    missing = [p.name for p in known.values() if p.default is p.empty and p.name not in arguments]
    wrong = sorted(arguments.keys() - known.keys())
    if wrong or missing:
        what = f"has no argument {wrong[0]!r}" if wrong else f"requires {missing[0]}=..."
        raise ValueError(f"task {name!r} {what}; its arguments are {', '.join(known)}")
    return TASKS[name].trials(**arguments)


__all__ = ["HALVES", "OF_DOCUMENTS", "TASKS", "Task", "add_distractors", "exchange_questions", "load", "to_select"]
__all__ += [
    "arithmetic",
    "babilong",
    "capitals",
    "colored_objects",
    "continuation",
    "copy_colors",
    "greater_than",
    "induction",
]
__all__ += ["ioi", "key_value", "musique", "niah", "nolima"]
__all__ += [
    "packaged",
    "parametric",
    "qrhead",
    "rhyme",
    "sec10k",
    "sec10k_documents",
    "succession",
    "swearing",
    "word_pairs",
]
__all__ += ["arc_challenge", "boolq", "gsm8k", "hellaswag", "humaneval", "mbpp", "mmlu", "wmdp"]
__dir__ = __all__.copy
