"""Everything that takes heads and says what happens to the model without them, with only them, or with more of them.

Takes heads as they are given: no ranking is made here.
"""

from lens_heads.evidence import verdicts as verdicts
from lens_heads.evidence.contrast import contrast as contrast
from lens_heads.evidence.correlation import correlate as correlate
from lens_heads.evidence.correlation_results import Correlation as Correlation
from lens_heads.evidence.curve import ablation_curve as ablation_curve
from lens_heads.evidence.curve_results import AblationCurve as AblationCurve
from lens_heads.evidence.faithfulness import faithfulness as faithfulness
from lens_heads.evidence.faithfulness_results import FaithfulnessCurve as FaithfulnessCurve
from lens_heads.evidence.generality import Generality as Generality
from lens_heads.evidence.generality import generality as generality
from lens_heads.evidence.recovery import recovery as recovery
from lens_heads.evidence.recovery_results import NothingFlipped as NothingFlipped
from lens_heads.evidence.recovery_results import Recovery as Recovery
from lens_heads.evidence.reinforce import reinforce as reinforce
from lens_heads.evidence.reinforce import reinforced_heads as reinforced_heads
from lens_heads.evidence.repair import repair as repair
from lens_heads.evidence.streaming import StreamingTable as StreamingTable
from lens_heads.evidence.streaming import streaming as streaming
from lens_heads.evidence.streaming import streaming_cache as streaming_cache
from lens_heads.evidence.transfer import transfer_matrix as transfer_matrix
from lens_heads.evidence.transfer_files import read_counts as read_counts
from lens_heads.evidence.transfer_files import read_rankings as read_rankings
from lens_heads.evidence.transfer_results import TransferMatrix as TransferMatrix
from lens_heads.evidence.validation import MatchValidation as MatchValidation
from lens_heads.evidence.validation import validate_match as validate_match

__all__ = [
    "AblationCurve",
    "Correlation",
    "FaithfulnessCurve",
    "Generality",
    "MatchValidation",
    "NothingFlipped",
    "Recovery",
    "StreamingTable",
    "TransferMatrix",
    "ablation_curve",
    "contrast",
    "correlate",
    "faithfulness",
    "generality",
    "read_counts",
    "read_rankings",
    "recovery",
    "reinforce",
    "reinforced_heads",
    "repair",
    "streaming",
    "streaming_cache",
    "transfer_matrix",
    "validate_match",
    "verdicts",
]
