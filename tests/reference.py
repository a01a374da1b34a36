"""Every score as a plain loop written from its formula, on plain Hugging Face forward passes. Slow and obviously right."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Plain:
    """One full eager forward of a Hugging Face model, with the parts a formula names."""

    def __init__(self, hf: Any, tokens: Tensor) -> None:
        self.hf, self.tokens, self.v, self.attn_out = hf, tokens, {}, {}
        decoder = hf.transformer.h if hasattr(hf, "transformer") else hf.model.layers
        self.layers = list(decoder)
        handles = []
        for i, layer in enumerate(self.layers):
            attn = layer.attn if hasattr(layer, "attn") else layer.self_attn
            proj = attn.c_proj if hasattr(attn, "c_proj") else attn.o_proj
            if hasattr(attn, "c_attn"):
                handles.append(attn.c_attn.register_forward_hook(lambda m, a, o, i=i: self.v.update({i: o[0]})))
            else:
                handles.append(attn.v_proj.register_forward_hook(lambda m, a, o, i=i: self.v.update({i: o[0]})))
            handles.append(proj.register_forward_hook(lambda m, a, o, i=i: self.attn_out.update({i: o[0]})))
        with torch.no_grad():
            out = hf(tokens[None], output_attentions=True, output_hidden_states=True)
        for handle in handles:
            handle.remove()
        self.A = [a[0] for a in out.attentions]
        self.logits = out.logits[0]
        self.n_heads = self.A[0].shape[0]
        self.final_norm = hf.transformer.ln_f if hasattr(hf, "transformer") else hf.model.norm
        self.W_U = hf.lm_head.weight.detach().T
        self.resid = self._last_resid(tokens)

    def _last_resid(self, tokens: Tensor) -> Tensor:
        seen: list[Tensor] = []
        handle = self.final_norm.register_forward_pre_hook(lambda m, a: seen.append(a[0][0].detach()))
        with torch.no_grad():
            self.hf(tokens[None])
        handle.remove()
        return seen[0]

    def value(self, layer: int, head: int, key: int) -> Tensor:
        """v[h, j], with the kv head that query head h reads."""
        flat = self.v[layer][key]
        if hasattr(self.hf, "transformer"):
            flat = flat[2 * flat.shape[0] // 3 :]
            return flat.reshape(self.n_heads, -1)[head]
        kv = self.hf.config.num_key_value_heads
        return flat.reshape(kv, -1)[head // (self.n_heads // kv)]

    def W_O(self, layer: int, head: int) -> Tensor:
        """[d_head, d_model]"""
        block = self.layers[layer]
        weight = block.attn.c_proj.weight if hasattr(block, "attn") else block.self_attn.o_proj.weight.T
        return weight.detach().reshape(self.n_heads, -1, weight.shape[-1])[head]

    def direction(self, layer: int, row: int, token: int, exact: bool) -> Tensor:
        """u_t, raw or exact."""
        u = self.W_U[:, token]
        if not exact:
            return u
        u = self._through(self.final_norm, self.resid[row], u)
        block = self.layers[layer]
        post = getattr(block, "post_attention_layernorm", None)
        is_post_norm = self.hf.config.model_type in ("gemma2", "gemma3_text", "olmo2", "olmo3")
        return self._through(post, self.attn_out[layer][row], u) if is_post_norm else u

    def _through(self, norm: Any, x: Tensor, u: Tensor) -> Tensor:
        """The Jacobian of the norm with its scale frozen, by linearity: column i is what basis vector i maps to."""
        eps = getattr(norm, "eps", None) or getattr(norm, "variance_epsilon", None)
        gain = norm.weight.detach()
        if "Gemma" in type(norm).__name__:
            gain = 1 + gain
        basis = torch.eye(len(x))
        if isinstance(norm, torch.nn.LayerNorm):
            basis = basis - basis.mean(-1, keepdim=True)
            scale = ((x - x.mean()).pow(2).mean() + eps).sqrt()
        else:
            scale = (x.pow(2).mean() + eps).sqrt()
        return (basis * gain / scale) @ u


Lens = tuple[Tensor, Tensor]
"""A [layer, d_model, d_model] and b [layer, d_model]: what layer l's heads write is read as h + h A^T + b."""


def phi(p: Plain, layer: int, head: int, row: int, key: int, u: Tensor, lens: Lens | None = None) -> float:
    """A (v W_O) u; through a lens, what a position's value would write is translated before it is weighted and read."""
    written = p.value(layer, head, key) @ p.W_O(layer, head)
    if lens is not None:
        A, b = lens
        written = written + A[layer] @ written + b[layer]
    return float(p.A[layer][head, row, key] * (written @ u))


def spatial(f: list[float], needle: tuple[int, int]) -> float:
    inside = sum(f[needle[0] : needle[1]])
    outside = sum(f[: needle[0]]) + sum(f[needle[1] :])
    length = needle[1] - needle[0]
    return inside - length / max(len(f) - length, 1) * outside


def score(
    method: str,
    p: Plain,
    n: int,
    needle: tuple[int, int],
    steps: list[int],
    answer: list[int],
    exact: bool = False,
    lens: Lens | None = None,
) -> Tensor:
    """[layer, head] of one trial: prompt of n tokens, generated `steps`, of which those at indices `answer` are the answer."""
    out = torch.zeros(len(p.A), p.n_heads)
    for layer in range(out.shape[0]):
        for head in range(out.shape[1]):
            out[layer, head] = _one(method, p, n, needle, steps, answer, layer, head, exact, lens)
    return out


def _one(
    method: str,
    p: Plain,
    n: int,
    needle: Any,
    steps: Any,
    answer: Any,
    layer: int,
    head: int,
    exact: bool,
    lens: Lens | None = None,
) -> float:
    s, e = needle
    A = p.A[layer][head]
    rows = {i: n - 1 + i for i in range(len(steps))}
    if method in ("locos_exact", "dla_exact"):
        return _one(method.removesuffix("_exact"), p, n, needle, steps, answer, layer, head, True)
    if method in ("attention_spatial_no_sink", "attention_mass_no_sink"):
        total = 0.0
        for i in answer:
            kept = [float(A[rows[i], j]) for j in range(1, rows[i] + 1)]
            whole = sum(kept)
            kept = [a / whole if whole else 0.0 for a in kept]
            inside = (max(s, 1) - 1, e - 1)
            total += spatial(kept, inside) if "spatial" in method else sum(kept[slice(*inside)])
        return total / len(answer)
    if method in ("locos", "dla", "attention_spatial"):
        total = 0.0
        for i in answer:
            t = rows[i]
            if method == "attention_spatial":
                total += spatial([float(A[t, j]) for j in range(t + 1)], needle)
                continue
            u = p.direction(layer, t, steps[i], exact)
            f = [phi(p, layer, head, t, j, u, lens) for j in range(t + 1)]
            total += spatial(f, needle) if method == "locos" else sum(f)
        return total / len(answer)
    if method == "attention_mass":
        return sum(sum(float(A[rows[i], j]) for j in range(s, e)) for i in answer) / len(answer)
    if method == "copy":
        hits = 0
        for i, t in rows.items():
            best = max(range(t + 1), key=lambda j: float(A[t, j]))
            hits += int(s <= best < e and int(p.tokens[best]) == steps[i])
        return hits / (e - s)
    if method == "contrastive":
        m = {}
        for i, t in rows.items():
            order = sorted((j for j in range(t + 1) if A[t, j] > 0), key=lambda j: -float(A[t, j]))[:10]
            m[i] = sum(s <= j < e for j in order) / 10
        others = [m[i] for i in rows if i not in answer]
        return max(sum(m[i] for i in answer) / len(answer) - (sum(others) / len(others) if others else 0), 0)
    assert method == "headkv"
    return max(float(A[t, s:e].sum()) for t in range(n - 8, n))
