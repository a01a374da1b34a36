"""Spellings of a value: how to find it in a filing, and which answers count as equal."""

from __future__ import annotations

import re
from functools import lru_cache

from lens_heads.tasks.sec10k.settings import settings

_JUNK = re.compile(r"\s*[\\/]\s*(?:[A-Z]{2,4}\s*[\\/]?)?\s*$")
_ACCENTS = {"a": "aàáâãäå", "c": "cç", "e": "eèéêë", "i": "iìíîï", "n": "nñ", "o": "oòóôõö", "u": "uùúûü"}
_NOT_LARGER = (r"(?<![\d.])(?<!\d,)", r"(?!\d|[,.]\d)")


def clean_name(name: str) -> str:
    """A registrant's name without EDGAR's suffixes for state and change: `ACME INC \\PA\\`, `ACME CO/`, `ACME CO /DE/`."""
    return _JUNK.sub("", name.strip())


def core_name(name: str) -> str:
    """The name without "The" and legal form: "Acme Holding" for "The Acme Holding Co., Inc."."""
    tokens = clean_name(name).split()
    tokens = tokens[1:] if len(tokens) > 1 and tokens[0].lower() == "the" else tokens
    while len(tokens) > 1 and (_plain(tokens[-1]) in settings()["legal_forms"] or tokens[-1] == "&"):
        tokens = tokens[:-1]
    return " ".join(tokens).rstrip(",")


def state_name(code: str) -> str | None:
    """The name of a US state, D.C. or Puerto Rico by its postal code; None for others, such as EDGAR's "A1" (abroad)."""
    return settings()["states"].get(code.strip().upper())


@lru_cache(maxsize=4096)
def written(kind: str, value: str) -> str:
    """A regular expression, without groups, for every spelling of a value in running text.

    `kind` is "name" (any or no legal form, any accents, any case), "state" (by name; by postal code only as part of a
    place, ", DE" or "DE 19801"), "city" or "person" (as given or in capitals), "year", or "number" (with or without
    separators, but not inside a larger number: 1480 does not match in 11,480).
    """
    if kind == "name":
        return _name(value)
    if kind == "state":
        return _state(value)
    if kind in ("year", "number"):
        digits = re.sub(r"\B(?=(?:\d{3})+$)", ",?", number(value)) if kind == "number" else value
        return _NOT_LARGER[0] + digits + _NOT_LARGER[1]
    return rf"(?<![\w-])(?:{_in_capitals_too(value)})(?![\w-])"


@lru_cache(maxsize=8)
def anything(kind: str) -> str:
    """A regular expression for any value of a kind that can be extracted: "number", "year", "person" or "city"."""
    places = "|".join([*settings()["states"].values(), *settings()["states"]])
    return {
        "number": rf"{_NOT_LARGER[0]}(?:\d{{1,3}}(?:,\d{{3}})+|\d+){_NOT_LARGER[1]}",
        "year": rf"{_NOT_LARGER[0]}(?:18|19|20)\d\d{_NOT_LARGER[1]}",
        "person": r"(?<![\w-])(?:[A-Z]['’])?[A-Z][\w-]+(?![\w-])",
        "city": rf"(?<![\w.-])(?:[A-Z][\w'’-]+|St\.|Ft\.)(?:\s+(?:of\s+)?[A-Z][\w'’-]+){{0,2}}(?=,\s+(?:{places})\b)",
    }[kind]


def variants(kind: str, value: str) -> tuple[str, ...]:
    """The value and its equivalents: other forms of a name, a state's postal code, a number with separators."""
    forms = [value]
    if kind == "name":
        core, spelled = core_name(value), settings()["legal_forms"]
        last = _plain(clean_name(value).split()[-1])
        forms = [clean_name(value), core, f"{core} {spelled[last]}" if spelled.get(last) else core]
    elif kind == "state":
        forms += _codes(value)
    elif kind == "number":
        forms += [number(value), f"{int(number(value)):,}"]
    return tuple(dict.fromkeys(forms))


def abbreviated(kind: str, value: str | None, text: str) -> bool:
    """Whether a text gives a state by its postal code, or a name without its legal form."""
    if kind == "state":
        return len(text) == 2
    return kind == "name" and value is not None and _legal(value) and not _legal(text)


def number(value: str) -> str:
    """The digits of an integer: "4342" for "4,342" and "4342.0"; ValueError for anything else."""
    found = re.fullmatch(r"(\d+(?:,\d{3})*)(?:\.0+)?", value.strip())
    if not found:
        raise ValueError(f"{value!r} is not an integer: write it as 4342 or 4,342")
    return str(int(found[1].replace(",", "")))


def _legal(name: str) -> bool:
    return _plain(clean_name(name).split()[-1]) in settings()["legal_forms"]


def _plain(token: str) -> str:
    return re.sub(r"[.,]", "", token).lower()


def _codes(state: str) -> list[str]:
    return [code for code, name in settings()["states"].items() if name == state]


def _in_capitals_too(value: str) -> str:
    return "|".join(r"\s+".join(map(re.escape, form.split())) for form in (value, value.upper()))


def _state(value: str) -> str:
    guard = {"Virginia": r"(?<!West\s)(?<!WEST\s)", "Washington": r"(?<!George\s)"}.get(value, "")
    after = r"(?!,?\s+D\.?\s?C\b)" if value == "Washington" else ""
    placed = "".join(rf"|(?<=,\s){code}(?![\w&])|(?<!\w){code}(?=,?\s+\d{{5}})" for code in _codes(value))
    return rf"(?:{guard}(?<!\w)(?:{_in_capitals_too(value)})(?!\w){after}{placed})"


def _name(value: str) -> str:
    legal = settings()["legal_forms"]
    words = r"[\W_]{1,3}".join(_token(part) for part in re.split(r"[^\w&]+", core_name(value)) if part)
    forms = "|".join(sorted(map(re.escape, legal), key=len, reverse=True))
    return rf"(?i:(?<!\w)(?:the\s+)?{words}(?!\w)(?:,?\s+(?:{forms})(?!\w)\.?)*)"


def _token(part: str) -> str:
    """Matches a word of a name, ignoring accents and whether "Corp" and "&" are spelled out."""
    if part == "&":
        return "(?:&|and)"
    plain, spelled = part.lower(), settings()["legal_forms"]
    same = {plain, spelled.get(plain, plain), *(short for short, long in spelled.items() if long.lower() == plain)}
    options = (
        "".join(f"[{_ACCENTS[c]}]" if c in _ACCENTS else re.escape(c) for c in form.lower()) for form in same if form
    )
    return f"(?:{'|'.join(sorted(options))})"
