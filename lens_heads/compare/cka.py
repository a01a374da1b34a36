"""Do two heads write alike on the same words? Linear CKA of their activations, which may differ in width.

CKA: Kornblith et al., arXiv 1905.00414. HSIC is estimated by the unbiased HSIC_1 of Song et al. (JMLR 13, 2012, eq. 5),
summed over minibatches before taking the ratio, as in Nguyen, Raghu & Kornblith (arXiv 2010.15327, eq. 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from lens_heads.runs import checks
from lens_heads.runs.typed import typed

CHUNK = 128
"""Maximum rows per minibatch; the size of a Gram matrix is its square."""

Grams: TypeAlias = Sequence[Float[Tensor, "head pair"]]
"""Centred Gram matrices of some heads, one tensor per minibatch."""


@typed
def linear_cka(
    x: Float[Tensor, "row head_a d_a"], y: Float[Tensor, "row head_b d_b"], *, chunk: int = CHUNK
) -> Float[Tensor, "head_a head_b"]:
    """Unbiased minibatch linear CKA between every head of x and every head of y; the rows of both are the same stimuli.

    CKA(a, b) = sum_c HSIC_1(K_c, L_c) / sqrt(sum_c HSIC_1(K_c, K_c) * sum_c HSIC_1(L_c, L_c)), K_c = x_c x_c^T over the
    rows of minibatch c (at most `chunk`). 1 for representations that are equal up to rotation, shift and scale. Around 0,
    on either side, for independent ones, where the biased estimator is well above it. 0 for a constant head.

    Raises ValueError if x and y differ in rows, are not finite, or have fewer than the 4 rows that HSIC_1 requires.

    Example:
        >>> x = torch.randn(32, 1, 4, generator=torch.Generator().manual_seed(0))
        >>> lh.compare.linear_cka(x, 3 * x + 1).round(decimals=3).tolist()
        [[1.0]]
    """
    for name, given in (("x", x), ("y", y)):
        if not given.isfinite().all():
            raise ValueError(f"{name} has values that are not finite: load the model in float32 or bfloat16")
    if len(x) != len(y):
        raise ValueError(f"x has {len(x)} rows, but y has {len(y)}. Pass activations on the same stimuli.")
    grams_x, grams_y = centred_grams(x, chunk), centred_grams(y, chunk)
    return cka_of(products(grams_x, grams_y), norms(grams_x), norms(grams_y))


def centred_grams(x: Float[Tensor, "row head d"], chunk: int = CHUNK) -> list[Float[Tensor, "head pair"]]:
    """Each head's Gram matrix per minibatch, scaled so that inner products of two of them are values of HSIC_1.

    HSIC_1(K, L) = <U(K), U(L)> / (n (n - 3)) with the U-centred matrix U(K)_ij = K_ij - sum_l K_il / (n - 2)
    - sum_k K_kj / (n - 2) + sum_kl K_kl / ((n - 1) (n - 2)) for i != j, 0 on the diagonal, all sums without the diagonal
    (Szekely & Rizzo, Annals of Statistics 42, 2014). Only the entries above the diagonal are kept.
    """
    if len(x) < 4:
        raise ValueError(f"x has {len(x)} rows, but the unbiased HSIC requires at least 4")
    checks.whole_number("chunk", chunk, 8, remedy=", so that every minibatch has the 4 rows HSIC requires")
    return [_centred_gram(part) for part in x.tensor_split(-(-len(x) // chunk))]


def _centred_gram(x: Float[Tensor, "row head d"]) -> Float[Tensor, "head pair"]:
    n = len(x)
    x = x - x.mean(0)  # Reduces rounding error only: activations lie far from zero.
    gram = einsum(x, x, "i head d, j head d -> head i j")
    gram.diagonal(dim1=1, dim2=2).zero_()
    sums = gram.sum(-1)
    gram = gram - (sums[:, :, None] + sums[:, None, :]) / (n - 2) + sums.sum(-1)[:, None, None] / ((n - 1) * (n - 2))
    above = torch.triu_indices(n, n, offset=1)
    return gram[:, above[0], above[1]] * (2 / (n * (n - 3))) ** 0.5


def products(a: Grams, b: Grams) -> Float[Tensor, "head_a head_b"]:
    """HSIC_1 between every head of a and every head of b, summed over minibatches."""
    return torch.stack([x @ y.T for x, y in zip(a, b, strict=True)]).sum(0)


def norms(a: Grams) -> Float[Tensor, " head"]:
    """HSIC_1 of every head with itself, summed over minibatches."""
    return torch.stack([x.square().sum(-1) for x in a]).sum(0)


def cka_of(
    between: Float[Tensor, "head_a head_b"], of_a: Float[Tensor, " head_a"], of_b: Float[Tensor, " head_b"]
) -> Float[Tensor, "head_a head_b"]:
    """CKA from summed HSIC_1; 0 for a constant head."""
    scale = (of_a[:, None] * of_b).sqrt()
    return torch.where(scale > 0, between / torch.where(scale > 0, scale, 1), 0)
