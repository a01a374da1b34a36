"""Models in which no head can do what a score says: one without training, one whose heads write what others should."""

from __future__ import annotations

import torch

from lens_heads.model.copies import copied, redrawn, set_output_weights
from lens_heads.model.geometry import Model, head_geometry, output_weights
from lens_heads.runs import checks
from lens_heads.runs.typed import typed


@typed
def random_initialised(model: Model, *, seed: int = 0) -> Model:
    """An untrained model: same class, configuration, dtype and tokenizer, with weights drawn as before training.

    Controls for what the architecture and the prompts alone produce. Its heads have learned nothing, so a score, a damage or
    a match that is as strong here says nothing about training. (Adebayo et al., arXiv 1810.03292)

    Returns a new model, as large as the first and on one device, named "<name> random-initialised seed <seed>". The original
    and torch's random state stay as they are.

    Raises ValueError for processed weights and a seed that is no whole number; TypeError for anything but a TransformerLens
    model.

    Example:
        >>> untrained = lh.sanity.random_initialised(model)
        >>> [lh.evaluate(one, trials, generate=False).metrics["greedy_match"].mean().item() for one in (model, untrained)]
        [1.0, 0.0]
    """
    name, seed = head_geometry(model).name, checks.seed(seed)
    return redrawn(model, f"{name} random-initialised seed {seed}", seed)


@typed
def shuffled_outputs(model: Model, *, seed: int = 0) -> Model:
    """A copy whose heads have exchanged their output weights W_O inside each layer; no head keeps its own.

    Controls for scores that come from attention and values alone. Every head still computes its pattern and values with its
    own weights, and every layer still has the same set of W_O, but what a head writes does not belong to what it reads. In
    layer 0 patterns and values are those of the original; later layers get another residual stream. Output biases stay.

    Returns a new model, as large as the first and on one device, named "<name> shuffled outputs seed <seed>". The original
    stays as it is.

    Raises ValueError for processed weights, layers of a single head and a seed that is no whole number; TypeError for
    anything but a TransformerLens model.

    Example:
        >>> shuffled = lh.sanity.shuffled_outputs(model)
        >>> lh.rank(shuffled, trials, "locos")["locos"].top(2) == heads
        False
    """
    shape, seed = head_geometry(model), checks.seed(seed)
    if shape.n_heads < 2:
        raise ValueError(
            f"{shape.name} has one head per layer, which has no other to exchange W_O with: use another model"
        )
    made = copied(model, f"{shape.name} shuffled outputs seed {seed}")
    generator = torch.Generator().manual_seed(seed)
    for layer in shape.attending:
        set_output_weights(
            made, layer, output_weights(made, layer)[_derangement(shape.layers[layer].n_heads, generator)]
        )
    return made


def _derangement(n: int, generator: torch.Generator) -> list[int]:
    """A uniformly random order of 0..n-1 in which no number keeps its place; about one in e orders is one."""
    while True:
        order = torch.randperm(n, generator=generator).tolist()
        if all(at != number for at, number in enumerate(order)):
            return order
