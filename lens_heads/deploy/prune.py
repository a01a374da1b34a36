"""prune: write a checkpoint without some heads, which any loader of the model's own kind reads."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch

from lens_heads.deploy.smaller import kept_groups, without_groups
from lens_heads.heads.geometry import HeadGeometry
from lens_heads.heads.head import AnyHeads, Head
from lens_heads.heads.scores import HeadScores
from lens_heads.heads.sets import by_layer
from lens_heads.heads.units import query_heads, to_kv_heads
from lens_heads.interventions.ablate import ablate
from lens_heads.model.belonging import check_scores_of
from lens_heads.model.copies import Packed, copied, packed, set_output_weights
from lens_heads.model.geometry import Model, head_geometry, is_bridge, output_weights
from lens_heads.model.hooks import has_hooks
from lens_heads.model.modes import evaluating
from lens_heads.model.support import require
from lens_heads.runs import checks
from lens_heads.runs.drawn import Tabled
from lens_heads.runs.files import check_place, naming, path_of, temporary_folder
from lens_heads.runs.reading import reason
from lens_heads.runs.typed import typed
from lens_heads.trials.bos import as_own

if TYPE_CHECKING:
    import pandas as pd

How = Literal["zero", "remove"]


@dataclass(frozen=True)
class Pruned(Tabled):
    """What was written: the folder, the heads that are gone, and the size of all weights before and after, in bytes.

    `path`, `how`: where, and which way. `parameters`: before and after.

    Example:
        >>> written = lh.prune(untrained, ["L0H0", "L0H1", "L1H0", "L1H1", "L2H0", "L2H1"], "smaller", how="remove")
        >>> written.how, written.parameters[0] > written.parameters[1]
        ('remove', True)
    """

    path: Path
    heads: tuple[Head, ...]
    how: How
    parameters: tuple[int, int]
    bytes: tuple[int, int]

    @property
    def frame(self) -> pd.DataFrame:
        """A row before and one after: which, heads (how many are gone), parameters, bytes."""
        import pandas as pd

        gone = (0, len(self.heads))
        return pd.DataFrame(
            {"which": ("before", "after"), "heads": gone, "parameters": self.parameters, "bytes": self.bytes}
        )


@typed
def prune(model: Model, heads: AnyHeads, path: str | Path, *, how: How = "zero") -> Pruned:
    """Save the model without some heads, as a folder that `load_model` and transformers read.

    Args:
        heads: query heads, as in `ablate`: places, which know no model. Of kv heads, `units.query_heads(kv_heads, group)`.
        path: a folder that does not exist yet, or is empty.
        how: "zero" sets the heads' rows of W_O to zero: any heads, nothing gets smaller. "remove" takes whole groups, a kv head
            with all query heads that read it, out of the weights and the configuration: the checkpoint is smaller and faster.
            Since a configuration has one number of heads, every layer has to lose equally many groups. A Llama whose width is
            then no multiple of its heads, which transformers refuses, is written as a Mistral, which computes the same.

    Logits equal those of `ablate(model, heads, "zero")` up to rounding, which is tried on a short prompt before anything is
    written. The model itself does not change. A call that fails or is killed leaves nothing behind; what a killed one held is
    removed by the next call for the same parent folder.

    Raises ValueError for a head that does not exist, a folder that is not empty, a group of which some query heads are to
    stay, other numbers of groups per layer, numbers of heads with which transformers refuses to load the configuration (the
    message lists those that it loads), and models whose head size follows from the number of heads or that normalize all heads
    together; OSError if the folder cannot be written.

    Example:
        >>> written = lh.prune(model, heads, "without")
        >>> lh.evaluate(lh.load_model(written.path, device="cpu"), trials, generate=False).metrics["greedy_match"].mean().item()
        0.0
    """
    shape, folder = require(model, "prune", "writes"), path_of(path, "path")
    if how not in get_args(How):
        raise ValueError(f"how={how!r}: use 'zero' (any heads) or 'remove' (whole groups of a kv head)")
    if not is_bridge(model):
        raise ValueError(
            "prune needs the Hugging Face model inside a TransformerBridge: load it with lens_heads.load_model(name)"
        )
    if has_hooks(model):
        raise ValueError(f"{shape.name} has hooks attached (an ablation?), which no checkpoint has: remove them first")
    chosen = tuple(dict.fromkeys(shape.check_heads(heads)))
    kept = kept_groups(shape, chosen) if how == "remove" else {}
    check_target(folder)
    parts = packed(_without_output(model, chosen) if how == "zero" else model)
    fresh = _plain(parts, shape, kept)
    _check_logits(model, chosen, fresh)
    if getattr(model.original_model, "generation_config", None) is not None:  # Where to stop, above all.
        fresh.generation_config = copy.deepcopy(model.original_model.generation_config)
    with naming(folder, "written"), _new_folders(folder.parent), temporary_folder(folder.parent, "pruning") as held:
        whole = held / "model"
        fresh.save_pretrained(whole)
        as_own(parts.tokenizer).save_pretrained(whole)
        os.replace(whole, folder)  # Complete or absent, also if it is interrupted.
    with torch.device("meta"):
        unpruned = parts.kind(parts.config)
    before, after = (sum(each.numel() for each in one.parameters()) for one in (unpruned, fresh))
    size = fresh.dtype.itemsize
    return Pruned(folder, chosen, how, (before, after), (size * before, size * after))


def check_target(folder: Path) -> None:
    """ValueError for a folder that holds something already, OSError for one that cannot be looked into."""
    with naming(folder, "written"):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ValueError(f"{folder} exists already: choose another folder for the pruned model")
    check_place(folder, "path")


@contextmanager
def _new_folders(folder: Path) -> Iterator[None]:
    """A folder and those above it that are made inside are gone again after an error."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        yield
    except BaseException:
        for each in missing:
            with suppress(OSError):
                each.rmdir()
        raise


def _plain(parts: Packed, shape: HeadGeometry, kept: dict[int, list[int]]) -> Any:
    """The Hugging Face model, with these kv heads of each layer, or all."""
    weights = {name: tensor for names, tensor in parts.weights for name in names}
    kind, config = parts.kind, copy.deepcopy(parts.config)
    config.architectures = config.architectures or [kind.__name__]
    if kept:
        kind, config, weights = without_groups(parts, shape, weights, kept)
    config._attn_implementation = (
        "eager"  # As in a bridge: Falcon with ALiBi gives other logits by sdpa. It is not saved.
    )
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        fresh = kind(config).to(parts.dtype).eval()
    missing = [name for name in fresh.state_dict() if name not in weights]
    if missing:
        raise ValueError(
            f"{parts.name} cannot be written: {parts.kind.__name__} has {missing[0]}, and the model does not"
        )
    fresh.load_state_dict({name: weights[name] for name in fresh.state_dict()})
    return fresh


@torch.no_grad()
def _check_logits(model: Model, chosen: Sequence[Head], fresh: Any) -> None:
    """ValueError unless the model to be written gives the logits of the one whose heads write zero, on a short prompt.

    Not where a norm stands between heads and output projection (BitNet), or what a head computes depends on its number (ALiBi).
    """
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(model.cfg.d_vocab, (1, 24), generator=generator)
    with evaluating(model), ablate(model, chosen, kind="zero"):
        expected = model(tokens.to(model.W_U.device)).float().cpu()
    try:
        found = fresh(tokens).logits.float()
    except RuntimeError as error:  # Shapes that do not meet, e.g. of a norm over all heads.
        raise ValueError(
            f"{head_geometry(model).name}: {type(fresh).__name__} does not run with fewer heads ({reason(error)}), so nothing "
            "was written: use how='zero'"
        ) from error
    error = float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-6))
    bound = 1e-3 if fresh.dtype == torch.float32 else 5e-2  # As in `check_model`: bfloat16 carries 8 bits.
    if not error <= bound:
        raise ValueError(
            f"{head_geometry(model).name}: a checkpoint without these heads would give other logits than the model with these "
            f"heads ablated (relative difference {error:.2g}), so nothing was written: use ablate(model, heads, kind='zero')"
        )


@typed
def lowest_groups(scores: HeadScores, shape: HeadGeometry, *, k: int) -> list[Head]:
    """All query heads of the k lowest kv heads of every layer, for how="remove".

    Scores of query heads count for the kv head that they read, by the best of its group. Of kv heads that tie, the last of the
    ranking go first. ValueError for scores of another model, and a k that leaves no kv head.

    `shape`: of `head_geometry(model)`.

    Example:
        >>> ranking = lh.sanity.random_ranking(untrained)
        >>> lh.deploy.lowest_groups(ranking, lh.head_geometry(untrained), k=1)
        [Head(0, 0), Head(0, 1), Head(1, 0), Head(1, 1), Head(2, 0), Head(2, 1)]
    """
    shape.check_kv_heads("lowest_groups")
    checks.whole_number(
        "k", k, 1, shape.n_kv_heads - 1, f": each of the {shape.n_kv_heads} kv heads of a layer but one"
    )
    by_kv = to_kv_heads(scores, shape.group) if scores.unit == "query_head" else scores
    if tuple(by_kv.values.shape) != (shape.n_layers, shape.n_kv_heads):
        raise ValueError(f"{scores.method} scores another model than {shape.name}: score this one")
    model = None if shape.model is None else shape.model()
    if model is not None:
        check_scores_of(model, {scores.method: scores})
    lowest: dict[int, list[Head]] = {layer: [] for layer in shape.attending}
    for head in reversed(
        by_kv.ranking()
    ):  # Not by score: where kv heads tie, those that a threshold keeps first go last.
        lowest[head.layer].append(head)
    return query_heads([head for heads in lowest.values() for head in heads[:k]], shape.group)


def _without_output(model: Model, chosen: Sequence[Head]) -> Model:
    """A copy whose W_O has zeros for these heads."""
    fresh = copied(model, head_geometry(model).name)
    for layer, indices in by_layer(chosen).items():
        W_O = output_weights(fresh, layer).clone()
        W_O[indices] = 0
        set_output_weights(fresh, layer, W_O)
    return fresh
