"""Do two heads write alike on the same words? Linear CKA of their activations, whatever their widths.

CKA: Kornblith et al., arXiv 1905.00414. The estimator of HSIC is the unbiased HSIC_1 of Song et al. (JMLR 13, 2012, eq. 5),
summed over minibatches before the ratio is taken as in Nguyen, Raghu & Kornblith (arXiv 2010.15327, eq. 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

CHUNK = 128
"""Rows per minibatch at most: a Gram matrix is as large as its square."""

Grams: TypeAlias = Sequence[Float[Tensor, "head pair"]]
"""The centred Gram matrices of some heads, minibatch by minibatch."""


def linear_cka(
    x: Float[Tensor, "row head_a d_a"], y: Float[Tensor, "row head_b d_b"], chunk: int = CHUNK
) -> Float[Tensor, "head_a head_b"]:
    """Unbiased minibatch linear CKA between every head of x and every head of y; rows are the same stimuli in both.

    CKA(a, b) = sum_c HSIC_1(K_c, L_c) / sqrt(sum_c HSIC_1(K_c, K_c) * sum_c HSIC_1(L_c, L_c)), K_c = x_c x_c^T over the
    rows of minibatch c (at most `chunk` of them). 1 for equal representations up to rotation, shift and scale; around 0,
    on either side, for independent ones, where the biased estimator is well above it. 0 for a head that never changes.

    Raises ValueError when the rows differ, or are fewer than the 4 that HSIC_1 needs.
    """
    if len(x) != len(y):
        raise ValueError(f"CKA compares the same rows: x has {len(x)}, y has {len(y)}")
    grams_x, grams_y = centred_grams(x, chunk), centred_grams(y, chunk)
    return cka_of(products(grams_x, grams_y), norms(grams_x), norms(grams_y))


def centred_grams(x: Float[Tensor, "row head d"], chunk: int = CHUNK) -> list[Float[Tensor, "head pair"]]:
    """Each head's Gram matrix, minibatch by minibatch, such that products of two are values of HSIC_1.

    HSIC_1(K, L) = <U(K), U(L)> / (n (n - 3)) with the U-centred matrix U(K)_ij = K_ij - sum_l K_il / (n - 2)
    - sum_k K_kj / (n - 2) + sum_kl K_kl / ((n - 1) (n - 2)) for i != j, 0 on the diagonal, all sums without the diagonal
    (Szekely & Rizzo, Annals of Statistics 42, 2014). Kept are the entries above the diagonal, scaled.
    """
    if len(x) < 4 or chunk < 8:
        raise ValueError(
            f"{len(x)} rows in minibatches of {chunk}: the unbiased HSIC needs at least 4 rows, and chunk at least 8 to leave "
            "4 in every minibatch"
        )
    return [_centred_gram(part) for part in x.tensor_split(-(-len(x) // chunk))]


def _centred_gram(x: Float[Tensor, "row head d"]) -> Float[Tensor, "head pair"]:
    n = len(x)
    x = x - x.mean(0)  # Changes nothing but the rounding: activations lie far from zero.
    gram = einsum(x, x, "i head d, j head d -> head i j")
    gram.diagonal(dim1=1, dim2=2).zero_()
    sums = gram.sum(-1)
    gram = gram - (sums[:, :, None] + sums[:, None, :]) / (n - 2) + sums.sum(-1)[:, None, None] / ((n - 1) * (n - 2))
    above = torch.triu_indices(n, n, offset=1)
    return gram[:, above[0], above[1]] * (2 / (n * (n - 3))) ** 0.5


def products(a: Grams, b: Grams) -> Float[Tensor, "head_a head_b"]:
    """Sum over minibatches of HSIC_1 between every head of a and every head of b."""
    return torch.stack([x @ y.T for x, y in zip(a, b, strict=True)]).sum(0)


def norms(a: Grams) -> Float[Tensor, " head"]:
    """Sum over minibatches of every head's HSIC_1 with itself."""
    return torch.stack([x.square().sum(-1) for x in a]).sum(0)


def cka_of(
    between: Float[Tensor, "head_a head_b"], of_a: Float[Tensor, " head_a"], of_b: Float[Tensor, " head_b"]
) -> Float[Tensor, "head_a head_b"]:
    """CKA from sums of HSIC_1; 0 where a head never changes."""
    scale = (of_a[:, None] * of_b).sqrt()
    return torch.where(scale > 0, between / torch.where(scale > 0, scale, 1), 0)
