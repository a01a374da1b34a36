"""Heads and what is known of them as values: `Head`, `HeadScores` (a ranking), sets of heads and controls, files.

Knows no model and no trial: what it checks is that values fit each other.
"""

from lens_heads.heads import units
from lens_heads.heads.circuit import Circuit
from lens_heads.heads.conditions import Condition
from lens_heads.heads.controls import Controls
from lens_heads.heads.files import load_heads
from lens_heads.heads.gates import gate_threshold, open_gates, read_gates, write_gates
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.head import Head
from lens_heads.heads.named import Rankings
from lens_heads.heads.scores import HeadScores

__all__ = [
    "Circuit", "Condition", "Controls", "Head", "HeadGeometry", "HeadScores", "Rankings", "gate_threshold",
    "load_heads", "open_gates", "read_gates", "units", "write_gates",
]  # fmt: skip
__dir__ = __all__.copy
