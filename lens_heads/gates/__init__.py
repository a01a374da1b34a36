"""Heads found by training something small on each of them: DuoAttention, HardKuma, LoFiT, soft injection, causal head gating."""

from lens_heads.gates.duo import duo as duo
from lens_heads.gates.fitted import Fitted as Fitted
from lens_heads.gates.hardkuma import hardkuma as hardkuma
from lens_heads.gates.head_gating import HeadRoles as HeadRoles
from lens_heads.gates.head_gating import head_gating as head_gating
from lens_heads.gates.lofit import lofit as lofit
from lens_heads.gates.passkeys import passkeys as passkeys
from lens_heads.gates.soft_injection import soft_injection as soft_injection
from lens_heads.heads.gates import gate_threshold as gate_threshold
from lens_heads.heads.gates import open_gates as open_gates

__all__ = [
    "Fitted",
    "HeadRoles",
    "duo",
    "gate_threshold",
    "hardkuma",
    "head_gating",
    "lofit",
    "open_gates",
    "passkeys",
    "soft_injection",
]
