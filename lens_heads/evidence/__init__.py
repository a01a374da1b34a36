"""Everything that takes heads and says what happens to the model without them, with only them, or with more of them.

Takes heads as they are given: no ranking is made here.
"""

from lens_heads.evidence import verdicts
from lens_heads.evidence.areas import areas
from lens_heads.evidence.contrast import contrast
from lens_heads.evidence.correlation import correlate
from lens_heads.evidence.correlation_results import Correlation
from lens_heads.evidence.curve import ablation_curve
from lens_heads.evidence.curve_results import AblationCurve
from lens_heads.evidence.faithfulness import faithfulness
from lens_heads.evidence.faithfulness_results import FaithfulnessCurve
from lens_heads.evidence.generality import Generality, generality
from lens_heads.evidence.recovery import recovery
from lens_heads.evidence.recovery_results import NothingFlipped, Recovery
from lens_heads.evidence.reinforce import reinforce, reinforced_heads
from lens_heads.evidence.repair import repair
from lens_heads.evidence.streaming import StreamingTable, streaming, streaming_cache
from lens_heads.evidence.transfer import transfer_matrix
from lens_heads.evidence.transfer_files import read_counts, read_rankings
from lens_heads.evidence.transfer_results import TransferMatrix
from lens_heads.evidence.validation import MatchValidation, validate_match

__all__ = [
    "AblationCurve", "Correlation", "FaithfulnessCurve", "Generality", "MatchValidation", "NothingFlipped",
    "Recovery", "StreamingTable", "TransferMatrix", "ablation_curve", "areas", "contrast", "correlate", "faithfulness",
    "generality", "read_counts", "read_rankings", "recovery", "reinforce", "reinforced_heads", "repair",
    "streaming", "streaming_cache", "transfer_matrix", "validate_match", "verdicts",
]  # fmt: skip
__dir__ = __all__.copy
