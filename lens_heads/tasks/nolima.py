"""NoLiMa: needles whose questions share no word with them (Modarressi et al., ICML 2025, arXiv 2502.05167)."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from lens_heads.runs import checks
from lens_heads.runs.reading import user_path
from lens_heads.runs.typed import typed
from lens_heads.runs.warned import users_line
from lens_heads.tasks.books import at_least, read_book, read_books
from lens_heads.tasks.rows import hub_file
from lens_heads.tasks.sampling import check_known, depths_grid, lengths_grid, stratified
from lens_heads.tasks.schema import Entry, cases, read_entries
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.judges import DEFAULT, Judge
from lens_heads.trials.trial import Trial

HUB = "amodaresi/NoLiMa"
BOOKS = tuple(f"haystack/rand_shuffle/rand_book_{i}.txt" for i in range(1, 6))
_STANDARD, _DIRECT = "needle_set.json", "needle_set_ONLYDirect.json"


@dataclass(frozen=True)
class Preset:
    """A grid: `lengths` in tokens, the number of `depths`, a slice of each entry's characters, the number of trials."""

    lengths: tuple[int, ...]
    depths: int
    characters: slice
    n: int | None
    chat: bool | None


# The grids of the LOCOS paper (arXiv 2607.01002): as documented; as its job scripts ran; and for ablation, with the
# characters that the other two leave out.
PRESETS = {
    "paper": Preset(tuple(lengths_grid(20, 1_000, 50_000)), 10, slice(0, 1), 200, False),
    "scripts": Preset(tuple(lengths_grid(10, 1_000, 5_000)), 10, slice(0, 3), 200, True),
    "evaluation": Preset(tuple(lengths_grid(5, 1_000, 16_000)), 5, slice(3, None), 800, None),
}
_BENCHMARK = Preset((250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000), 26, slice(None), 200, True)
_DEFAULT = Preset((1_000, 2_000, 4_000), 5, slice(0, 1), None, None)


@typed
def nolima(
    source: str | Path | None = None,
    *,
    questions: str = "onehop",
    preset: str | None = None,
    n: int | None = None,
    lengths: int | Sequence[int] | None = None,
    depths: int | Sequence[float] | None = None,
    characters: int | Sequence[str] | None = None,
    seed: int = 42,
    chat: bool | None = None,
    needle_set: str | None = None,
    benchmark: bool = False,
) -> list[Trial]:
    """NoLiMa trials over a grid of context lengths and needle depths.

    Args, besides those of `lens_heads.tasks`:
        source: None for the official files (dataset `amodaresi/NoLiMa`), which are downloaded, never shipped, since they
            are under the Adobe Research License (non-commercial); or a folder with the same layout or your own data:
            `needlesets/*.json` or `*.json` in NoLiMa's schema (see `schema`), and `haystack/**/*.txt`.
        questions: "onehop", "twohop", "direct", or any other question type in the entries. Entries without it are left
            out, in a folder of your own with a warning; it is an error if all lack it.
        preset: a grid of the LOCOS paper, see `PRESETS`: "paper", "scripts" (as its jobs ran) or "evaluation". None:
            lengths 1,000, 2,000, 4,000 x 5 depths, one character per entry. Other arguments override the preset.
        n: number of trials, stratified over (needle, test, depth); a preset draws fewer if its grid is smaller.
        characters: names of each entry's character_set to use: how many (the first ones), or a list.
        benchmark: prompts, grid and judging of NoLiMa's own evaluation (below) instead of a preset's.
        needle_set: a file name; None for needle_set.json (direct questions: needle_set_ONLYDirect.json), else every .json.

    Returns:
        Trials with ids such as "0401-T16_C02-onehop-Yuki-len1000-depth11"; `meta` holds entry, test, kind, questions,
        character and book. A group is an entry with a character: "evaluation" has the entries of the other
        presets, but none of their characters.

    Prompts and judging are those of the LOCOS paper: needles after a sentence at or below their depth in a book's first
    tokens, the answer as whole words of the text's first line. With `benchmark=True` they are NoLiMa's own: lengths of 250 to
    32,000, 26 depths, every test in every book, needles at the end of a line of a window (`LineTrial`), at each
    depth the character that its random numbers (numpy, seed 42) draw, and the answer anywhere in the whole text, in its case.
    It runs all of these; here 200 are drawn unless `n` says otherwise.

    Differs from the LOCOS authors' sampling, which cuts test ids at an underscore and so mixes tests in one stratum.
    As there, entries cycle through the books; a book shorter than the longest length is repeated.

    Example:
        >>> entry = {"id": "01", "needle": "Then {CHAR} moved next to the {1}.", "questions": {"onehop": "Who has been to {2}?"}}
        >>> entry |= {"character_set": ["Yuki"], "tests": {"T1": {"input_args": ["Semper Opera", "Dresden"]}}}
        >>> entry |= {"reasoning_type": "world_knowledge", "task_template": "{haystack} {question}", "system_prompt": ""}
        >>> pd.DataFrame([entry]).to_json("needles.json", orient="records")
        >>> Path("haystack").mkdir()
        >>> _ = Path("haystack/book.txt").write_text("It rained all day. " * 100)
        >>> trial = lh.tasks.nolima(".", lengths=[100], depths=[0.5])[0]
        >>> trial.needle, trial.question
        ('Then Yuki moved next to the Semper Opera.', 'Who has been to Dresden?')
    """
    if preset is not None:
        check_known("preset", preset, PRESETS, ", or None")
        if benchmark:
            raise ValueError(
                f"preset={preset!r} is the LOCOS paper's, and benchmark=True asks for NoLiMa's own: use one of them"
            )
    checks.seed(seed)
    chosen = PRESETS[preset] if preset else _BENCHMARK if benchmark else _DEFAULT
    grid = lengths_grid(lengths if lengths is not None else chosen.lengths)
    at = depths_grid(depths if depths is not None else chosen.depths)
    entries, texts = _read(source, questions, needle_set)
    asked = _asked(entries, questions, warn=source is not None)
    # A window begins within a book, so that the benchmark's have to be twice as long as the prompt.
    books = [(name, at_least(text, max(grid) * (2 if benchmark else 1))) for name, text in texts.items()]
    about: dict[str, Any] = {"kind": Trial, "chat": chosen.chat if chat is None else chat, "judge": DEFAULT}
    if benchmark:
        about |= {"kind": LineTrial, "judge": Judge(normalization="verbatim", multiline=True)}
    trials: list[Trial] = []
    strata: dict[str, tuple[str, str, float]] = {}
    for number, entry in enumerate(asked):
        names = _characters(entry, characters, chosen.characters)
        listed = books if benchmark else [books[number % len(books)]]
        for case, (book, text), length, depth in product(cases(entry, names), listed, grid, at):
            if benchmark and case.character != _drawn(names, at.index(depth)):
                continue
            named = filter(None, (entry.id, case.test.id, questions, case.character, book if benchmark else ""))
            id, group = f"{'-'.join(named)}-len{length}-depth{100 * depth:g}", f"nolima {entry.id}-{case.character}"
            trials.append(
                case.trial(questions, book, id=id, haystack=text, depth=depth, length=length, group=group, **about)
            )
            strata[id] = entry.id, case.test.id, depth
    wanted = min(chosen.n or len(trials), len(trials)) if n is None else n
    return stratified(trials, wanted, lambda trial: strata[trial.id], seed)


def _drawn(names: tuple[str, ...], number: int) -> str:
    """The name that the benchmark draws for a depth: it begins every test, book and length with the same seed."""
    rng = np.random.RandomState(42)
    return [str(rng.choice(names)) for _ in range(number + 1)][-1] if names else ""


def _characters(entry: Entry, wanted: int | Sequence[str] | None, preset: slice) -> tuple[str, ...]:
    """The names to use for an entry, in its own order."""
    names = entry.characters
    have = f"{entry.where}: field 'character_set' has {len(names)} names"
    if isinstance(wanted, str):
        raise ValueError(f"characters={wanted!r} must be a number or a list of names such as [{wanted!r}]")
    if not names:
        return ()
    if wanted is None:
        if not names[preset]:
            raise ValueError(
                f"{have}, and the evaluation preset reserves the first {preset.start} for selection; "
                "add names, or choose some with characters=[..]"
            )
        return names[preset]
    if not isinstance(wanted, Iterable):
        if not 1 <= checks.whole_number("characters", wanted, least=None, remedy=" or a list of names") <= len(names):
            raise ValueError(f"{have}, so characters={wanted} is out of range; use 1 to {len(names)}")
        return names[:wanted]  # type: ignore[index]  # a whole number
    strangers = [name for name in wanted if name not in names]
    if strangers or not wanted:
        fault = f"contains {', '.join(strangers)}; use only these names" if strangers else "is empty; use some of them"
        raise ValueError(f"{have} ({', '.join(names)}), but characters={list(wanted)} {fault}")
    return tuple(name for name in names if name in wanted)


def _asked(entries: list[Entry], questions: str, warn: bool) -> list[Entry]:
    """The entries with the question type; all if none has it, which `Case.trial` then refuses."""
    asked = [entry for entry in entries if questions in entry.questions] or entries
    if warn and len(asked) < len(entries):
        left_out = ", ".join(entry.id for entry in entries if entry not in asked)
        warnings.warn(f"left out the entries without a {questions!r} question: {left_out}", stacklevel=users_line())
    return asked


def _read(source: str | Path | None, questions: str, needle_set: str | None) -> tuple[list[Entry], dict[str, str]]:
    """All entries of the needle set, and the books by name."""
    if source is None:
        name = needle_set or (_DIRECT if questions == "direct" else _STANDARD)
        entries = read_entries(_download(f"needlesets/{name}"))
        return entries, {Path(book).stem: read_book(_download(book)) for book in BOOKS}
    folder = user_path(source, "source")
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder: pass one with needlesets/*.json and haystack/*.txt")
    return read_entries(*_needle_files(folder, questions, needle_set)), read_books(folder)


def _needle_files(folder: Path, questions: str, needle_set: str | None) -> list[Path]:
    places = (folder / "needlesets", folder)
    wanted = [needle_set] if needle_set else [_DIRECT, _STANDARD] if questions == "direct" else [_STANDARD]
    for file in (place / name for name in wanted for place in places):
        if file.is_file():
            return [file]
    found = next((files for place in places if (files := sorted(place.glob("*.json")))), [])
    if needle_set:
        have = ", ".join(file.name for file in found) or "no .json file"
        raise FileNotFoundError(f"{folder} contains no needle set {needle_set}, only {have}: use one of these")
    if not found:
        raise FileNotFoundError(f"{folder} contains no needle set: put a .json file in {folder / 'needlesets'}")
    return found


def _download(name: str) -> Path:
    remedy = "pass the folder of a local copy as source=, or use the packaged task, which needs no download"
    return hub_file(HUB, name, remedy)


@dataclass(frozen=True)
class LineTrial(Trial):
    """A trial placed as `BookHaystack` in NoLiMa's code does it (Modarressi et al., arXiv 2502.05167).

    `length` counts tokens of the book alone: needle, template and question come on top. The needle ends the first line whose
    break is at or after `depth` of so many tokens, and the window of the book begins `depth * length` tokens before that.
    Other trials cut the book's beginning to `length` and put the needle after a sentence at or below `depth`.

    Differs from their code in one character: at depth 0 no space comes before the needle if whitespace does.
    """

    def encode(self, tokenizer: Any) -> EncodedTrial:
        """The trial in tokens. ValueError for a book without a line that ends there, or too short for the window."""
        before, after = _window(self, tokenizer)
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        placed = self.template.replace("{haystack}", f"{before}{{haystack}}{after}")
        found = Trial(**{**given, "template": placed, "haystack": "", "length": 0}).encode(tokenizer)
        return replace(found, meta={**found.meta, "length": self.length})


def _window(trial: Trial, tokenizer: Any) -> tuple[str, str]:
    """The book's text before and after the needle."""
    tokens, lines = _book(tokenizer, trial.haystack)
    # Not of `length`, and in this order: so their code measures and rounds.
    line = next((at for at in lines if at / (trial.length + 1) - trial.depth >= 0), None)
    if line is None:
        raise ValueError(
            f"trial {trial.id}: no line of the book ends at or after token {trial.depth * (trial.length + 1):.0f}, where "
            f"depth {trial.depth:g} of {trial.length} tokens is: use a longer book with line breaks, or another preset"
        )
    start = line - round(trial.length * trial.depth)
    if start + trial.length > len(tokens):
        raise ValueError(
            f"trial {trial.id}: the book has {len(tokens)} tokens, and a window of {trial.length} from token {start} on "
            "goes beyond: use a longer book or a smaller length"
        )
    before = tokenizer.decode(tokens[start : line + 1])
    after = tokenizer.decode(tokens[line + 1 : start + trial.length]) if line + 1 < start + trial.length else ""
    return before[: max(before.rfind("\n"), 0)], "\n" + after


@lru_cache(maxsize=8)
def _book(tokenizer: Any, text: str) -> tuple[list[int], list[int]]:
    """A book's tokens, and the positions of those with a line break, after position 0."""
    tokens = list(tokenizer(text, add_special_tokens=False).input_ids)
    breaks = {token for token in set(tokens) if "\n" in tokenizer.decode([token])}
    return tokens, [0, *(at for at, token in enumerate(tokens) if at and token in breaks)]
