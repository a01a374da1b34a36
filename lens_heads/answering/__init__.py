"""What does the model answer, under whatever is switched on? Metrics of trials and of pairs of runs.

Knows no ranking: it never chooses heads.
"""

from lens_heads.answering.answerable import Answerable as Answerable
from lens_heads.answering.answerable import answerable as answerable
from lens_heads.answering.evaluation import Evaluation as Evaluation
from lens_heads.answering.evaluation import evaluate as evaluate

__all__ = ["Answerable", "Evaluation", "answerable", "evaluate"]
