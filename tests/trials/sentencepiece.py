"""Tiny tokenizers of the SentencePiece kind: a space before every text, bytes for what has no word, a fast and a slow one."""

from __future__ import annotations

from functools import cache
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizer, PreTrainedTokenizerFast

SPACE = "\u2581"
WORDS = ("Anna", "Tom", "Oslo", "Bergen", "lives", "in", "Where", "does", "live", "Answer")
SPECIAL = dict(unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def _vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Words with the space before them, letters, and a token of two lines; merges that lead to the words."""
    names = [*SPECIAL.values(), *(f"<0x{i:02X}>" for i in range(256)), *map(chr, range(33, 127)), SPACE, "\n"]
    merges = [("\n", "\n")]
    for word in WORDS:
        parts = [SPACE + word[: i + 1] for i in range(len(word))]
        merges += [(SPACE if i == 0 else parts[i - 1], word[i]) for i in range(len(word))]
    return {name: i for i, name in enumerate(dict.fromkeys([*names, *(a + b for a, b in merges)]))}, list(
        dict.fromkeys(merges)
    )


@cache
def fast(prepends: bool = True) -> Any:
    """As Llama 2's: a normalizer puts the space first (`prepends`), or Metaspace does before the first piece."""
    names, merges = _vocabulary()
    raw = Tokenizer(models.BPE(names, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if prepends:
        spaced = [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
        raw.normalizer = normalizers.Sequence(spaced)  # type: ignore[assignment]
    else:
        raw.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme="first", split=False)  # type: ignore[assignment]
    undone = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    raw.decoder = decoders.Sequence(undone)  # type: ignore[assignment]
    raw.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])  # type: ignore[assignment]
    return PreTrainedTokenizerFast(tokenizer_object=raw, **SPECIAL)


class Slow(PreTrainedTokenizer):
    """The longest words first, in Python: it says of no token where it stands."""

    def __init__(self, **named: Any) -> None:
        self.names = _vocabulary()[0]
        self.ids = {i: name for name, i in self.names.items()}
        super().__init__(**named)

    @property
    def vocab_size(self) -> int:
        return len(self.names)

    def get_vocab(self) -> dict[str, int]:
        return dict(self.names)

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        rest, found = SPACE + text.replace(" ", SPACE), []
        while rest:
            longest = max((name for name in self.names if rest.startswith(name)), key=len, default="")
            found += [longest] if longest else [f"<0x{byte:02X}>" for byte in rest[0].encode()]
            rest = rest[len(longest or rest[0]) :]
        return found

    def _convert_token_to_id(self, token: str) -> int:
        return self.names.get(token, 0)

    def _convert_id_to_token(self, index: int) -> str:
        return self.ids[index]

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        held = b"".join(
            bytes([int(one[3:5], 16)]) if one.startswith("<0x") else one.replace(SPACE, " ").encode() for one in tokens
        )
        return held.decode(errors="replace").removeprefix(" ")


@cache
def slow() -> Any:
    return Slow(**SPECIAL, special_tokens_pattern="bos")
