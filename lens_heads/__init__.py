"""lens_heads: which attention heads do this, how do we know, and do other models have them too?

Names are loaded when first used, so that `import lens_heads` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "ablate": "lens_heads.interventions",
    "AblationCurve": "lens_heads.ablation",
    "ablation_curve": "lens_heads.ablation",
    "check": "lens_heads.checking",
    "Document": "lens_heads.documents",
    "DocumentTrial": "lens_heads.documents",
    "EncodedTrial": "lens_heads.trials",
    "evaluate": "lens_heads.evaluation",
    "Evaluation": "lens_heads.evaluation",
    "geometry": "lens_heads.models",
    "Head": "lens_heads.heads",
    "HeadScores": "lens_heads.heads",
    "Judge": "lens_heads.judges",
    "load_heads": "lens_heads.scorefiles",
    "load_model": "lens_heads.models",
    "localize_heads": "lens_heads.localize",
    "match_heads": "lens_heads.compare",
    "mean_activations": "lens_heads.activations",
    "MeanActivations": "lens_heads.activations",
    "score_heads": "lens_heads.scoring",
    "Scorer": "lens_heads.scorers",
    "SCORERS": "lens_heads.scorers",
    "TokenPair": "lens_heads.causal.pairs",
    "patch": "lens_heads.causal.patching",
    "patch_heads": "lens_heads.causal.patching",
    "path_patch": "lens_heads.causal.paths",
    "attribution_patch": "lens_heads.causal.attribution",
    "rerank": "lens_heads.reranking",
    "recovery": "lens_heads.causal.recover",
    "Recovery": "lens_heads.causal.recovery_table",
    "Trial": "lens_heads.trials",
}
_MODULES = ("anatomy", "causal", "compare", "localize", "plots", "report", "scorers", "stats", "studies", "tasks")

__all__ = sorted([*_HOMES, *_MODULES])  # pyright: ignore[reportUnsupportedDunderAll] - written out above


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"lens_heads.{name}")
    raise AttributeError(f"module 'lens_heads' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__


if TYPE_CHECKING:
    from lens_heads import anatomy as anatomy
    from lens_heads import causal as causal
    from lens_heads import compare as compare
    from lens_heads import localize as localize
    from lens_heads import plots as plots
    from lens_heads import report as report
    from lens_heads import scorers as scorers
    from lens_heads import stats as stats
    from lens_heads import studies as studies
    from lens_heads import tasks as tasks
    from lens_heads.ablation import AblationCurve as AblationCurve
    from lens_heads.ablation import ablation_curve as ablation_curve
    from lens_heads.activations import MeanActivations as MeanActivations
    from lens_heads.activations import mean_activations as mean_activations
    from lens_heads.causal.attribution import attribution_patch as attribution_patch
    from lens_heads.causal.pairs import TokenPair as TokenPair
    from lens_heads.causal.patching import patch as patch
    from lens_heads.causal.patching import patch_heads as patch_heads
    from lens_heads.causal.paths import path_patch as path_patch
    from lens_heads.causal.recover import recovery as recovery
    from lens_heads.causal.recovery_table import Recovery as Recovery
    from lens_heads.checking import check as check
    from lens_heads.compare import match_heads as match_heads
    from lens_heads.documents import Document as Document
    from lens_heads.documents import DocumentTrial as DocumentTrial
    from lens_heads.evaluation import Evaluation as Evaluation
    from lens_heads.evaluation import evaluate as evaluate
    from lens_heads.heads import Head as Head
    from lens_heads.heads import HeadScores as HeadScores
    from lens_heads.interventions import ablate as ablate
    from lens_heads.judges import Judge as Judge
    from lens_heads.localize import localize_heads as localize_heads
    from lens_heads.models import geometry as geometry
    from lens_heads.models import load_model as load_model
    from lens_heads.reranking import rerank as rerank
    from lens_heads.scorefiles import load_heads as load_heads
    from lens_heads.scorers import SCORERS as SCORERS
    from lens_heads.scorers import Scorer as Scorer
    from lens_heads.scoring import score_heads as score_heads
    from lens_heads.trials import EncodedTrial as EncodedTrial
    from lens_heads.trials import Trial as Trial
