"""Heads found by training something small on each of them: DuoAttention, HardKuma, LoFiT, soft injection, causal head gating."""

from lens_heads.gates.duo import duo as duo
from lens_heads.gates.fitted import Fitted as Fitted
from lens_heads.gates.hardkuma import hardkuma as hardkuma
from lens_heads.gates.head_gating import HeadRoles as HeadRoles
from lens_heads.gates.head_gating import head_gating as head_gating
from lens_heads.gates.lofit import lofit as lofit
from lens_heads.gates.passkeys import passkeys as passkeys
from lens_heads.gates.soft_injection import soft_injection as soft_injection

__all__ = ["Fitted", "HeadRoles", "duo", "hardkuma", "head_gating", "lofit", "passkeys", "soft_injection"]
