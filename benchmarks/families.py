"""On which families of models is everything right? Tiny random models of each, against plain transformers.

A model is saved by `save_pretrained`, loaded by `load_model(folder)`, and compared with what transformers alone makes of the same
weights (eager attention, no cache, a hook before the output projection): log-probabilities, also in a batch of unequal prompts;
the answer without a head; what each head writes, and the contributions of positions to it; a pattern that is edited; a head
patched from another prompt. `families.json` has the configurations. Another version of a package is one more run.

Writes results/families.json.

Run: python benchmarks/families.py [--only "Gemma 4"] [--check]     about a minute
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import lens_heads as lh
from lens_heads.model.architectures import UnsuitedError, attentions, output_projection
from lens_heads.model.geometry import head_geometry
from lens_heads.sanity.planted_weights import byte_tokenizer
from lens_heads.trials.encoded import EncodedTrial

HERE = Path(__file__).parent
FILE = HERE / "results" / "families.json"
FAMILIES: dict[str, dict[str, Any]] = json.loads((HERE / "families.json").read_text(encoding="utf-8"))
CLOSE = 2e-4
"""The error that rounding leaves, relative to the size of what is compared (log-probabilities, writes)."""


def plain(name: str) -> Any:
    """The Hugging Face model with eager attention, whose every weight matters."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    one = FAMILIES[name]
    torch.manual_seed(0)
    config = AutoConfig.for_model(one["kind"], **one["settings"])
    maker = AutoModelForSeq2SeqLM if getattr(config, "is_encoder_decoder", False) else AutoModelForCausalLM
    model = maker.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for part, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            if parameter.ndim > 1 and "conv" not in part:
                parameter.copy_(noise * (0.6 if max(parameter.shape) > 100 else 0.25))
            elif "sinks" in part:
                parameter.copy_(noise)
            elif parameter.is_floating_point():
                parameter.add_(0.1 * noise)
    return model


def trial(seed: int, n: int = 30, answer: int = 3) -> EncodedTrial:
    """A prompt of random tokens with a needle."""
    generator = torch.Generator().manual_seed(seed)
    tokens, answers = (torch.randint(5, 250, (size,), generator=generator) for size in (n, answer))
    return EncodedTrial(tokens, (8, 14), "an answer", answers, f"random-{seed}")


class Witness:
    """What transformers alone makes of a model, and what it passes to the output projections."""

    def __init__(self, hf: Any, model: Any) -> None:
        self.hf, self.shape = hf, head_geometry(model)
        own = dict(hf.named_modules())
        self.projections = {}
        for name, module in model.original_model.named_modules(remove_duplicate=False):
            plain_name = name.replace("._original_component", "")
            for layer, attention in attentions(model).items():
                if module is output_projection(attention) and plain_name in own:
                    self.projections[layer] = own[plain_name]

    @torch.no_grad()
    def logits(self, tokens: Tensor) -> Tensor:
        return self.hf(tokens[None], use_cache=False).logits[0]

    @contextmanager
    def editing(self, layer: int, edit: Callable[[Tensor], Tensor]) -> Iterator[None]:
        """Inside, the output projection of a layer is given `edit(z)`, z [batch, row, head, d_head]."""

        def hook(module: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            by_head = self.shape.by_head(args[0].reshape(-1, *args[0].shape[-2:]), layer)
            return (edit(by_head.clone()).reshape(args[0].shape), *args[1:])

        handle = self.projections[layer].register_forward_pre_hook(hook)
        try:
            yield
        finally:
            handle.remove()

    def z(self, tokens: Tensor, layer: int) -> Tensor:
        seen: list[Tensor] = []

        def note(z: Tensor) -> Tensor:
            seen.append(z[0].detach())
            return z

        with self.editing(layer, note):
            self.logits(tokens)
        return seen[0]

    @torch.no_grad()
    def weights(self, layer: int) -> Tensor:
        """W_O by head, from what the projection makes of an identity."""
        one = self.shape.layers[layer]
        width = one.n_heads * one.d_head
        module = self.projections[layer]
        whole = module(torch.eye(width)) - module(torch.zeros(1, width))
        return whole.reshape(one.n_heads, one.d_head, -1)


def logprob(logits: Tensor, one: EncodedTrial) -> float:
    steps = len(one.answer_tokens)
    rows = logits[-steps:].log_softmax(-1)
    return float(rows.gather(-1, one.answer_tokens[:, None]).mean())


def whole(one: EncodedTrial) -> Tensor:
    """The tokens that are run: the prompt, and the answer but for its last token."""
    return torch.cat([one.tokens, one.answer_tokens[:-1]])


def forced(model: Any, *trials: EncodedTrial, **how: Any) -> list[float]:
    return lh.evaluate(model, list(trials), generate=False, progress=False, **how).metrics["logprob"].tolist()


def off(found: float, wanted: float) -> float:
    return abs(found - wanted) / max(1.0, abs(wanted))


def zeroed(head: int) -> Callable[[Tensor], Tensor]:
    def edit(z: Tensor) -> Tensor:
        z[:, :, head] = 0
        return z

    return edit


def _logits(model: Any, one: Witness) -> float:
    trials = [trial(seed, n) for seed, n in ((0, 30), (1, 19), (2, 44))]  # A batch with padding.
    expected = [logprob(one.logits(whole(each)), each) for each in trials]
    found = [forced(model, *trials, batch_size=size) for size in (1, 3)]
    return max(off(a, b) for values in found for a, b in zip(values, expected, strict=True))


def _heads(one: Witness) -> list[tuple[int, int]]:
    return [(layer, layer % one.shape.layers[layer].n_heads) for layer in one.shape.attending][:3]


def _ablation(model: Any, one: Witness) -> float:
    each, errors = trial(0), []
    for layer, head in _heads(one):
        with one.editing(layer, zeroed(head)):
            expected = logprob(one.logits(whole(each)), each)
        with lh.ablate(model, [(layer, head)], kind="zero"):
            errors.append(off(forced(model, each)[0], expected))
    return max(errors)


def _contributions(model: Any, one: Witness) -> float:
    """Over all positions they sum to what the head writes onto the answer, which is `dla`."""
    each = trial(0)
    look = lh.look(model, each, direction="raw")
    dla = lh.score_heads(model, each, "dla", teacher_forced=True, progress=False)["dla"]
    U, errors = model.W_U.detach(), []
    for layer in one.shape.attending:
        writes = torch.einsum("the,hed->thd", one.z(whole(each), layer), one.weights(layer))
        rows = writes[torch.tensor(look.rows)]
        expected = torch.einsum("thd,dt->ht", rows, U[:, look.produced])
        mine = [at for at, head in enumerate(look.heads) if head.layer == layer]
        size = float(expected.abs().max())
        errors.append(float((look.phi[mine].float().sum(-1) - expected).abs().max()) / size / 10)  # Kept in float16.
        errors.append(float((dla.values[layer, : len(mine)] - expected.mean(1)).abs().max()) / size)
    return max(errors)


def _pattern(model: Any, one: Witness) -> float:
    """Equal attention changes the answer, and so does what the head reads: 0 if it does, 1 if nothing changes."""
    each = trial(0)
    intact, (layer, head) = forced(model, each)[0], _heads(one)[-1]
    with lh.ablate(model, [(layer, head)], kind="uniform"):
        return float(off(forced(model, each)[0], intact) < 1e-5)


def _patching(model: Any, one: Witness) -> float:
    """A head's z from another prompt, at all rows."""
    clean, corrupt = trial(0), trial(7)
    given = replace(clean, corrupt=corrupt.tokens)
    found = lh.patch_heads(model, given, positions="all", corruption="counterfactual", progress=False)
    rows = torch.cat([corrupt.tokens, clean.answer_tokens[:-1]])
    base, errors = logprob(one.logits(rows), clean), []
    for layer, head in _heads(one):
        z = one.z(whole(clean), layer)[:, head]

        def edit(x: Tensor, z: Tensor = z, head: int = head) -> Tensor:
            x[0, :, head] = z
            return x

        with one.editing(layer, edit):
            effect = logprob(one.logits(rows), clean) - base
        errors.append(abs(float(found.values[layer, head]) - effect) / max(1.0, abs(effect)))
    return max(errors)


MEASURES: dict[str, Callable[[Any, Witness], float]] = {
    "logits": _logits,
    "ablation": _ablation,
    "contributions": _contributions,
    "patterns": _pattern,
    "patching": _patching,
}


def judged(name: str) -> dict[str, Any]:
    """A family's row."""
    row: dict[str, Any] = {"family": name, "kind": FAMILIES[name]["kind"]}
    try:
        hf = plain(name)
    except Exception as error:
        return row | {"verdict": "not built", "why": f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"}
    row["class"] = type(hf).__name__
    with tempfile.TemporaryDirectory() as folder:
        byte_tokenizer(folder)
        hf.save_pretrained(folder)
        hf = type(hf).from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
        try:
            model = lh.load_model(folder, device="cpu")
        except UnsuitedError as error:
            return row | {"verdict": "refused", "why": said(error, folder)}
        except Exception as error:
            return row | {"verdict": "foreign error", "why": f"{type(error).__name__}: {said(error, folder)}"}
    one, errors, refused = Witness(hf, model), {}, {}
    for measure, run in MEASURES.items():
        try:
            errors[measure] = run(model, one)
        except ValueError as error:
            refused[measure] = said(error, folder)
        except Exception as error:
            return row | {
                "verdict": "foreign error",
                "why": f"{measure}: {type(error).__name__}: {said(error, folder)}",
            }
    wrong = {measure: error for measure, error in errors.items() if not error <= CLOSE}
    verdict = "wrong" if wrong else "exact" if not refused else "except" if errors else "refused"
    why = "; ".join(f"{measure} {error:.2g}" for measure, error in wrong.items()) or "; ".join(
        dict.fromkeys(refused.values())
    )
    return row | {"verdict": verdict, "why": why, "error": max(errors.values(), default=None)}


def said(error: Exception, folder: str) -> str:
    """An error in one line, without the folder and the versions, which the file has once."""
    text = " ".join(str(error).split()).replace(f"{folder}: ", "").replace(Path(folder).name, "the model")
    return text.replace(f" (transformers {version('transformers')}, TransformerLens {version('transformer-lens')})", "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=FAMILIES, help="a family, repeatable; else all")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a verdict is not the stored one")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    rows = []
    for name in options.only or FAMILIES:
        rows.append(judged(name))
        print(f"{name}: {rows[-1]['verdict']} {rows[-1]['why'][:150]}", flush=True)
    if options.check:
        stored = {row["family"]: row["verdict"] for row in json.loads(FILE.read_text(encoding="utf-8"))["families"]}
        other = [row["family"] for row in rows if row["verdict"] != stored.get(row["family"])]
        print(f"{len(rows) - len(other)} as stored" + (f"; not so: {', '.join(other)}" if other else ""))
        return int(bool(other))
    versions = {package: version(package) for package in ("transformers", "transformer-lens", "torch")}
    FILE.write_text(json.dumps({"versions": versions, "families": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
