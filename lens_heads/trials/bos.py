"""What a prompt begins with: the tokens (a BOS, mostly) that the model's own tokenizer puts before a text by itself.

TransformerLens loads every tokenizer again with `add_bos_token=True`, so that what `model.tokenizer` then does says nothing
about the model: Pythia, Qwen, SmolLM2 and others never saw a BOS. The folder or hub name that the tokenizer came from still
knows, and decides; `load_model` also makes `model.tokenizer` and `model.to_tokens` do the same.
"""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import Any

_OWN = "_begins_as_the_models_own"
"""The attribute by which a tokenizer says so; copies of it, also in other processes, say so too."""


def begins(tokenizer: Any) -> list[int]:
    """The tokens that the model's own tokenizer puts before a text: one BOS, several (GLM), or none.

    For a model that `load_model` did not load, its tokenizer's folder or hub cache is asked; if that is gone, the tokenizer
    counts as it is.
    """
    return list(_begins(tokenizer))


def opening(tokenizer: Any, text: str) -> list[int]:
    """What a prompt beginning with `text` still needs before it: nothing if the text itself begins so, as many chat frames do."""
    own = begins(tokenizer)
    written = "".join(tokenizer.convert_ids_to_tokens(own)) if own else ""
    given = any(mark and text.startswith(mark) for mark in (written, tokenizer.bos_token))
    return [] if given else own


def beginning(tokenizer: Any) -> str:
    """What prompts begin with, in words: the tokens, or "no BOS"."""
    return "".join(tokenizer.convert_ids_to_tokens(begins(tokenizer))) or "no BOS"


def own_tokenizer(tokenizer: Any, **options: Any) -> Any | None:
    """The tokenizer as its folder or hub cache has it, if TransformerLens has loaded it again; None if that is gone.

    `options` of `AutoTokenizer.from_pretrained`. Nothing is downloaded, and no code of the folder is run.
    """
    # transformers takes `add_bos_token` from no file, so it is here only where a caller passed it.
    if settled(tokenizer) or getattr(tokenizer, "init_kwargs", {}).get("add_bos_token") is not True:
        return tokenizer
    from transformers import AutoTokenizer

    given = {"local_files_only": True, "trust_remote_code": False, **options}
    try:
        return AutoTokenizer.from_pretrained(tokenizer.name_or_path, **given)
    except Exception:  # of transformers, tokenizers, the hub or a file system
        return None


def settled(tokenizer: Any) -> bool:
    """Whether a tokenizer that TransformerLens has loaded again begins texts as it shall: see `keep_own` and `put_bos`."""
    return bool(getattr(tokenizer, _OWN, False))


def keep_own(tokenizer: Any, own: Any) -> None:
    """Make a tokenizer begin texts as the model's own does. It stays another object, since TransformerLens adds to it."""
    if tokenizer is not own:
        if hasattr(own, "add_bos_token"):
            tokenizer.add_bos_token = own.add_bos_token
        if getattr(tokenizer, "is_fast", False) and getattr(own, "is_fast", False):
            # After it: setting `add_bos_token` writes one that knows a BOS and an EOS, but not GLM's two tokens.
            tokenizer.backend_tokenizer.post_processor = own.backend_tokenizer.post_processor
    _settle(tokenizer, _added(tokenizer) == _added(own))


def as_own(tokenizer: Any) -> Any:
    """A copy that begins texts as the model's own does, to be saved: a BOS of TransformerLens's would be the new folder's."""
    made, own = copy.deepcopy(tokenizer), own_tokenizer(tokenizer)
    if own is not None:
        keep_own(made, made if own is tokenizer else own)
    return made


def put_bos(tokenizer: Any, wanted: bool) -> None:
    """Make a tokenizer begin texts with its BOS, or with nothing, whatever the model's own does."""
    tokenizer.add_bos_token = wanted
    _settle(tokenizer, True)


def _settle(tokenizer: Any, done: bool) -> None:
    object.__setattr__(tokenizer, _OWN, done)
    if tokenizer.bos_token is not None:
        tokenizer.init_kwargs["add_bos_token"] = True  # Or TransformerLens would load it again for every copy.
    _begins.cache_clear()


@lru_cache(maxsize=32)
def _begins(tokenizer: Any) -> tuple[int, ...]:
    return _added(own_tokenizer(tokenizer) or tokenizer)


def _added(tokenizer: Any) -> tuple[int, ...]:
    """The tokens that a tokenizer puts before a text by itself; those that it puts after are not among them."""
    whole, bare = (list(tokenizer("a", add_special_tokens=special).input_ids) for special in (True, False))
    at = next((i for i in range(len(whole) - len(bare) + 1) if bare and whole[i : i + len(bare)] == bare), 0)
    return tuple(whole[:at])
