"""Heads and what is known of them as values: `Head`, `HeadScores` (a ranking), sets of heads and controls, files.

Knows no model and no trial: what it checks is that values fit each other.
"""

from lens_heads.heads import units as units
from lens_heads.heads.circuit import Circuit as Circuit
from lens_heads.heads.conditions import Condition as Condition
from lens_heads.heads.conditions import Controls as Controls
from lens_heads.heads.files import load_heads as load_heads
from lens_heads.heads.gates import gate_threshold as gate_threshold
from lens_heads.heads.gates import open_gates as open_gates
from lens_heads.heads.gates import read_gates as read_gates
from lens_heads.heads.gates import write_gates as write_gates
from lens_heads.heads.geometry import HeadGeometry as HeadGeometry
from lens_heads.heads.head import Head as Head
from lens_heads.heads.matching import HeadMatch as HeadMatch
from lens_heads.heads.matching import match_accuracy as match_accuracy
from lens_heads.heads.scores import HeadScores as HeadScores

__all__ = [
    "Circuit",
    "Condition",
    "Controls",
    "Head",
    "HeadGeometry",
    "HeadMatch",
    "HeadScores",
    "gate_threshold",
    "load_heads",
    "match_accuracy",
    "open_gates",
    "read_gates",
    "units",
    "write_gates",
]
