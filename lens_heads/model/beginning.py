"""A loaded model begins texts as its own tokenizer does: in `model.tokenizer`, in `model.to_tokens`, and in every trial."""

from __future__ import annotations

from typing import Any

from lens_heads.model.geometry import Model
from lens_heads.trials.bos import beginning, begins, keep_own, own_tokenizer, put_bos, settled


def begin_as_own(model: Model, own: Any = None, prepend_bos: bool | None = None, **options: Any) -> None:
    """Undo what TransformerLens does to the tokenizer: it has every one put a BOS before a text.

    `own`: the model's own tokenizer, if it is at hand; else it is read again, with `options` of `AutoTokenizer.from_pretrained`.
    `prepend_bos` decides instead. Where the own one cannot be read, TransformerLens's default for the architecture does.
    """
    tokenizer = model.tokenizer
    if prepend_bos is not None:
        put_bos(tokenizer, prepend_bos)
    elif (own := own_tokenizer(tokenizer, **options) if own is None else own) is not None:
        keep_own(tokenizer, own)
    else:
        put_bos(tokenizer, bool(model.cfg.default_prepend_bos))
    agree(model)


def check_beginning(model: Model) -> None:
    """ValueError for a BOS that was switched on or off in the configuration of a loaded model, whose prompts do not ask it."""
    tokenizer = model.tokenizer
    if tokenizer is not None and settled(tokenizer):
        wanted, has_bos = bool(model.cfg.default_prepend_bos), begins(tokenizer)[:1] == [tokenizer.bos_token_id]
        if wanted != has_bos:
            raise ValueError(
                f"cfg.default_prepend_bos={wanted} was set after loading, where prompts begin with {beginning(tokenizer)!r}: "
                f"load the model with prepend_bos={wanted}"
            )


def agree(model: Model) -> None:
    """Let `model.to_tokens` and `model.generate` begin texts as the tokenizer does, if that has been put right."""
    tokenizer = model.tokenizer
    if settled(tokenizer):
        has_bos = begins(tokenizer)[:1] == [tokenizer.bos_token_id]
        model.cfg.default_prepend_bos = model.cfg.tokenizer_prepends_bos = has_bos
