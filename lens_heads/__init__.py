"""lens_heads: which attention heads do this, how do we know, and do other models have them too?

Names are loaded when first used, so that `import lens_heads` costs nothing.
"""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "ablate": "interventions.ablate",
    "Ablation": "interventions.ablation",
    "ablation_curve": "ablation.curve",
    "AblationCurve": "ablation.curves",
    "attribute_ablation": "causal.ablated",
    "attribution_patch": "causal.attribution",
    "Bench": "studies.ranking_methods.bench",
    "check": "model.check",
    "Condition": "ablation.conditions",
    "Controls": "ablation.conditions",
    "describe": "compare.cards",
    "Document": "trials.documents",
    "DocumentTrial": "trials.documents",
    "EncodedTrial": "trials.encoded",
    "evaluate": "ablation.evaluation",
    "Evaluation": "ablation.evaluation",
    "explore": "explorer.widget",
    "faithfulness": "causal.sufficiency",
    "FaithfulnessCurve": "causal.faithfulness_curve",
    "geometry": "model.geometry",
    "Head": "heads.head",
    "HeadScores": "heads.scores",
    "Judge": "trials.judges",
    "influence": "ablation.influence",
    "Influence": "ablation.influence",
    "knockout_heads": "causal.knockout",
    "load_heads": "heads.files",
    "load_model": "model.load",
    "working": "model.workers",
    "localize_heads": "localize.heads",
    "look": "scoring.looking",
    "Look": "scoring.looks",
    "match_heads": "compare.correspondence",
    "mean_activations": "interventions.activations",
    "MeanActivations": "interventions.activations",
    "trial_activations": "interventions.activations",
    "TrialActivations": "interventions.activations",
    "HeadVectors": "interventions.vectors",
    "aie": "causal.function_vectors",
    "probe_heads": "scoring.probing",
    "prune": "deploy.prune",
    "reinforce": "deploy.reinforce",
    "contrast": "deploy.contrast",
    "streaming": "deploy.streaming",
    "pair": "causal.text_pairs",
    "patch": "causal.patching",
    "patch_heads": "causal.patching",
    "path_patch": "causal.paths",
    "planted": "controls.planting",
    "prompt_trial": "trials.own",
    "read_gates": "heads.gates",
    "write_gates": "heads.gates",
    "razor_heads": "scoring.razor",
    "recommend": "studies.ranking_methods.recommend",
    "recovery": "causal.recover",
    "Recovery": "causal.recovery_table",
    "rerank": "scoring.reranking",
    "score_documents": "scoring.documents",
    "score_heads": "scoring.score",
    "Scorer": "scoring.scorer",
    "SCORERS": "scoring.scorers",
    "TokenPair": "causal.pairs",
    "token_curves": "scoring.token_curves",
    "TokenCurve": "scoring.token_curves",
    "sharding": "runs.parts",
    "steer": "interventions.steer",
    "task_vectors": "interventions.vectors",
    "Trial": "trials.trial",
    "why": "explorer.why",
    "Why": "explorer.why",
}
_MODULES = {
    "anatomy": "scoring.anatomy",
    "causal": "causal",
    "deploy": "deploy",
    "gates": "gates",
    "compare": "compare",
    "controls": "controls",
    "localize": "localize",
    "plots": "plots",
    "probes": "scoring.probes",
    "report": "report",
    "scorers": "scoring.scorers",
    "stats": "stats",
    "studies": "studies",
    "tasks": "tasks",
    "units": "heads.units",
    "verdicts": "ablation.verdicts",
}
"""Where the public names and modules are, below `lens_heads`."""

__all__ = sorted([*_HOMES, *_MODULES])  # pyright: ignore[reportUnsupportedDunderAll] - written out above


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"lens_heads.{_HOMES[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"lens_heads.{_MODULES[name]}")
    close = difflib.get_close_matches(name, __all__, 1)
    meant = f": did you mean {close[0]}?" if close else f"; it has {', '.join(__all__)}"
    raise AttributeError(f"module 'lens_heads' has no attribute {name!r}{meant}")


def __dir__() -> list[str]:
    return __all__


if TYPE_CHECKING:
    from lens_heads import causal as causal
    from lens_heads import compare as compare
    from lens_heads import controls as controls
    from lens_heads import deploy as deploy
    from lens_heads import gates as gates
    from lens_heads import localize as localize
    from lens_heads import plots as plots
    from lens_heads import report as report
    from lens_heads import stats as stats
    from lens_heads import studies as studies
    from lens_heads import tasks as tasks
    from lens_heads.ablation import verdicts as verdicts
    from lens_heads.ablation.conditions import Condition as Condition
    from lens_heads.ablation.conditions import Controls as Controls
    from lens_heads.ablation.curve import ablation_curve as ablation_curve
    from lens_heads.ablation.curves import AblationCurve as AblationCurve
    from lens_heads.ablation.evaluation import Evaluation as Evaluation
    from lens_heads.ablation.evaluation import evaluate as evaluate
    from lens_heads.ablation.influence import Influence as Influence
    from lens_heads.ablation.influence import influence as influence
    from lens_heads.causal.ablated import attribute_ablation as attribute_ablation
    from lens_heads.causal.attribution import attribution_patch as attribution_patch
    from lens_heads.causal.faithfulness_curve import FaithfulnessCurve as FaithfulnessCurve
    from lens_heads.causal.function_vectors import aie as aie
    from lens_heads.causal.knockout import knockout_heads as knockout_heads
    from lens_heads.causal.pairs import TokenPair as TokenPair
    from lens_heads.causal.patching import patch as patch
    from lens_heads.causal.patching import patch_heads as patch_heads
    from lens_heads.causal.paths import path_patch as path_patch
    from lens_heads.causal.recover import recovery as recovery
    from lens_heads.causal.recovery_table import Recovery as Recovery
    from lens_heads.causal.sufficiency import faithfulness as faithfulness
    from lens_heads.causal.text_pairs import pair as pair
    from lens_heads.compare.cards import describe as describe
    from lens_heads.compare.correspondence import match_heads as match_heads
    from lens_heads.controls.planting import planted as planted
    from lens_heads.deploy.contrast import contrast as contrast
    from lens_heads.deploy.prune import prune as prune
    from lens_heads.deploy.reinforce import reinforce as reinforce
    from lens_heads.deploy.streaming import streaming as streaming
    from lens_heads.explorer.why import Why as Why
    from lens_heads.explorer.why import why as why
    from lens_heads.explorer.widget import explore as explore
    from lens_heads.heads import units as units
    from lens_heads.heads.files import load_heads as load_heads
    from lens_heads.heads.gates import read_gates as read_gates
    from lens_heads.heads.gates import write_gates as write_gates
    from lens_heads.heads.head import Head as Head
    from lens_heads.heads.scores import HeadScores as HeadScores
    from lens_heads.interventions.ablate import ablate as ablate
    from lens_heads.interventions.ablation import Ablation as Ablation
    from lens_heads.interventions.activations import MeanActivations as MeanActivations
    from lens_heads.interventions.activations import TrialActivations as TrialActivations
    from lens_heads.interventions.activations import mean_activations as mean_activations
    from lens_heads.interventions.activations import trial_activations as trial_activations
    from lens_heads.interventions.steer import steer as steer
    from lens_heads.interventions.vectors import HeadVectors as HeadVectors
    from lens_heads.interventions.vectors import task_vectors as task_vectors
    from lens_heads.localize.heads import localize_heads as localize_heads
    from lens_heads.model.check import check as check
    from lens_heads.model.geometry import geometry as geometry
    from lens_heads.model.load import load_model as load_model
    from lens_heads.model.workers import working as working
    from lens_heads.runs.parts import sharding as sharding
    from lens_heads.scoring import anatomy as anatomy
    from lens_heads.scoring import probes as probes
    from lens_heads.scoring import scorers as scorers
    from lens_heads.scoring.documents import score_documents as score_documents
    from lens_heads.scoring.looking import look as look
    from lens_heads.scoring.looks import Look as Look
    from lens_heads.scoring.probing import probe_heads as probe_heads
    from lens_heads.scoring.razor import razor_heads as razor_heads
    from lens_heads.scoring.reranking import rerank as rerank
    from lens_heads.scoring.score import score_heads as score_heads
    from lens_heads.scoring.scorer import Scorer as Scorer
    from lens_heads.scoring.scorers import SCORERS as SCORERS
    from lens_heads.scoring.token_curves import TokenCurve as TokenCurve
    from lens_heads.scoring.token_curves import token_curves as token_curves
    from lens_heads.studies.ranking_methods.bench import Bench as Bench
    from lens_heads.studies.ranking_methods.recommend import recommend as recommend
    from lens_heads.trials.documents import Document as Document
    from lens_heads.trials.documents import DocumentTrial as DocumentTrial
    from lens_heads.trials.encoded import EncodedTrial as EncodedTrial
    from lens_heads.trials.judges import Judge as Judge
    from lens_heads.trials.own import prompt_trial as prompt_trial
    from lens_heads.trials.trial import Trial as Trial
