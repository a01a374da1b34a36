"""Trials: what a model is asked, and what counts as an answer. Encoding, spans, pairs, texts and judges.

Knows tokenizers, but no model: nothing here runs one.
"""

from lens_heads.trials.context_pairs import ContextPair as ContextPair
from lens_heads.trials.context_pairs import context_pairs as context_pairs
from lens_heads.trials.documents import Document as Document
from lens_heads.trials.documents import DocumentTrial as DocumentTrial
from lens_heads.trials.encoded import EncodedTrial as EncodedTrial
from lens_heads.trials.judges import Judge as Judge
from lens_heads.trials.needle_swaps import exchanged_needles as exchanged_needles
from lens_heads.trials.needle_swaps import without_needle as without_needle
from lens_heads.trials.own import prompt_trial as prompt_trial
from lens_heads.trials.pairs import TokenPair as TokenPair
from lens_heads.trials.pairs import make_pairs as make_pairs
from lens_heads.trials.text_pairs import pair as pair
from lens_heads.trials.texts import plain_texts as plain_texts
from lens_heads.trials.trial import Trial as Trial

__all__ = [
    "ContextPair",
    "Document",
    "DocumentTrial",
    "EncodedTrial",
    "Judge",
    "TokenPair",
    "Trial",
    "context_pairs",
    "exchanged_needles",
    "make_pairs",
    "pair",
    "plain_texts",
    "prompt_trial",
    "without_needle",
]
