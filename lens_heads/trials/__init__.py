"""Trials: what a model is asked, and what counts as an answer. Encoding, spans, pairs, texts and judges.

Knows tokenizers, but no model: nothing here runs one.
"""

from lens_heads.trials.context_pairs import ContextPair, context_pairs
from lens_heads.trials.documents import Document, DocumentTrial
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.judges import Judge
from lens_heads.trials.own import prompt_trial
from lens_heads.trials.pairs import make_pairs
from lens_heads.trials.text_pairs import pair
from lens_heads.trials.texts import plain_texts
from lens_heads.trials.trial import Distractor, Trial

__all__ = [
    "ContextPair", "Distractor", "Document", "DocumentTrial", "EncodedTrial", "Judge", "Trial", "context_pairs",
    "make_pairs", "pair", "plain_texts", "prompt_trial",
]  # fmt: skip
__dir__ = __all__.copy
