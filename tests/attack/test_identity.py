"""What changes a model's numbers is seen by its run folder, or refused: weights, scaling, hooks, references, tuned lenses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import lens_heads as lh
from lens_heads.interventions.activations import MeanActivations, TrialActivations
from lens_heads.interventions.checked_kind import reference_digest
from lens_heads.model.directions import Directions
from lens_heads.model.geometry import head_geometry
from lens_heads.model.identity import changed_by, fingerprint, scales
from tests import zoo
from tests.attack.held import refused
from tests.conftest import random_trial, tiny

TRIALS = [random_trial(seed, n=14, needle=(3, 6), answer=1) for seed in range(2)]


def stored(model: Any, out: Path) -> Any:
    return lh.score_heads(model, TRIALS, "locos", teacher_forced=True, progress=False, out=out)


@pytest.fixture(scope="module")
def model() -> Any:
    return zoo.bridge("gemma2")


@pytest.fixture(scope="module")
def folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    stored(model, out := tmp_path_factory.mktemp("identity") / "run")
    return out


def attention(model: Any, layer: int = 1) -> Any:
    return model.blocks[layer].attn.original_component


@contextmanager
def setting(holder: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)


SETTINGS: dict[str, Callable[[Any], Any]] = {
    "cfg.attn_scale": lambda model: setting(model.cfg, "attn_scale", 2.0),
    "cfg.use_attn_scale": lambda model: setting(model.cfg, "use_attn_scale", False),
    "cfg.eps": lambda model: setting(model.cfg, "eps", 0.1),
    "cfg.attn_scores_soft_cap": lambda model: setting(model.cfg, "attn_scores_soft_cap", 9.0),
    "the scaling of one layer": lambda model: setting(attention(model), "scaling", 0.5),
    "the scaling of the last layer": lambda model: setting(attention(model, 2), "scaling", 0.5),
    "the softcap of one layer": lambda model: setting(attention(model), "attn_logit_softcapping", None),
    "the window of one layer": lambda model: setting(attention(model, 0), "sliding_window", 3),
    "a window where there was none": lambda model: setting(attention(model), "sliding_window", 3),
    "the epsilon of one norm": lambda model: setting(model.blocks[0].ln1.original_component, "eps", 0.1),
    "the final softcap": lambda model: setting(model.original_model.config, "final_logit_softcapping", 1.0),
    "autocast": lambda model: torch.autocast("cpu", torch.bfloat16),
    "an activation function": lambda model: setting(model.blocks[1].mlp.original_component, "act_fn", torch.nn.ReLU()),
    "the query's scalar": lambda model: setting(model.original_model.config, "query_pre_attn_scalar", 4),
}


@pytest.mark.parametrize("change", SETTINGS.values(), ids=SETTINGS)
def test_another_scaling_is_another_run(model: Any, folder: Path, change: Callable[[Any], Any]) -> None:
    with change(model):
        refused(lambda: stored(model, folder), "scales.", model)
    stored(model, folder)


@contextmanager
def attached(register: Callable[..., Any], hook: Any, **how: Any) -> Iterator[None]:
    handle = register(hook, **how)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def replaced(module: Any) -> Iterator[None]:
    real = module.forward
    vars(module)["forward"] = MethodType(lambda self, *args, **more: real(*args, **more), module)
    try:
        yield
    finally:
        del vars(module)["forward"]


def nothing(*_: Any, **__: Any) -> None: ...


class Callback:
    def __call__(self, *_: Any) -> None: ...


WHOLE: Callable[[Any], Any] = lambda model: model.original_model  # noqa: E731
PLACES: dict[str, Callable[[Any], Any]] = {
    "the bridge": lambda model: model,
    "the Hugging Face model": WHOLE,
    "a block": lambda model: model.blocks[1],
    "an attention": attention,
    "a projection": lambda model: attention(model).o_proj,
    "an MLP": lambda model: model.blocks[2].mlp,
    "a norm": lambda model: model.blocks[0].ln1.original_component,
    "the embedding": lambda model: model.original_model.get_input_embeddings(),
    "the unembedding": lambda model: model.original_model.get_output_embeddings(),
    "a hook point": lambda model: model.blocks[0].attn.hook_z,
}
WAYS: dict[str, Callable[[Any], Any]] = {
    "a forward hook": lambda module: attached(module.register_forward_hook, nothing),
    "a forward pre-hook": lambda module: attached(module.register_forward_pre_hook, nothing),
    "a pre-hook with keywords": lambda module: attached(module.register_forward_pre_hook, nothing, with_kwargs=True),
    "a partial": lambda module: attached(module.register_forward_hook, partial(nothing, 1)),
    "a bound method": lambda module: attached(module.register_forward_hook, Callback().__call__),
    "an object": lambda module: attached(module.register_forward_hook, Callback()),
    "a backward hook": lambda module: attached(module.register_full_backward_hook, nothing),
}
HOOKS = {
    f"{way} on {place}": (WAYS[way], PLACES[place])
    for place in PLACES
    for way in ("a forward hook", "a forward pre-hook")
}
HOOKS |= {f"{way} on the whole": (WAYS[way], WHOLE) for way in WAYS}
HOOKS |= {f"a replaced forward of {place}": (replaced, at) for place, at in PLACES.items()}


@pytest.mark.parametrize(("change", "place"), HOOKS.values(), ids=HOOKS)
def test_hooks_of_torch_and_replaced_forwards_are_refused(model: Any, folder: Path, change: Any, place: Any) -> None:
    with change(place(model)):
        refused(lambda: stored(model, folder), "which a run folder cannot identify: omit out=, or remove them first")
    assert changed_by(model) is None
    stored(model, folder)


def test_hooks_on_all_modules_are_refused(model: Any, folder: Path) -> None:
    handle = torch.nn.modules.module.register_module_forward_hook(nothing)
    try:
        refused(lambda: stored(model, folder), "hooks attached (torch's, on all modules)")
    finally:
        handle.remove()


@pytest.mark.parametrize("name", zoo.ARCHITECTURES)
def test_running_a_model_does_not_change_its_identity(name: str) -> None:
    model = zoo.bridge(name)
    before = fingerprint(model), scales(model)
    lh.score_heads(model, TRIALS, max_new_tokens=2, teacher_forced=True, progress=False)
    lh.evaluate(model, TRIALS, max_new_tokens=2, progress=False)
    assert (fingerprint(model), scales(model), changed_by(model)) == (*before, None)
    assert before == (fingerprint(zoo.bridge(name)), scales(zoo.bridge(name)))


WRITES: dict[str, Callable[[torch.Tensor], Any]] = {
    "in place": lambda weight: weight.mul_(1.01),
    "through .data": lambda weight: weight.data.mul_(1.01),
    "through NumPy": lambda weight: weight.detach().numpy().__imul__(1.01),
    "one element": lambda weight: weight.view(-1)[-1].add_(1e-6),
    "rows exchanged": lambda weight: weight.copy_(weight.flip(0).clone()),
    "rows moved on": lambda weight: weight.copy_(weight.roll(4, 0).clone()),
    "turned in place": lambda weight: setattr(weight, "data", weight.data.T.contiguous()),
    "a sign of zero": lambda weight: weight.view(-1)[0].copy_(torch.tensor(-0.0)),
}


@pytest.mark.slow
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("part", ["q_proj", "k_proj", "v_proj", "o_proj"])
def test_every_write_to_a_weight_is_seen(part: str, write: Callable[[torch.Tensor], Any]) -> None:
    model = zoo.bridge("llama-mqa")
    weight = getattr(attention(model), part).weight
    with torch.no_grad():
        weight.view(-1)[0] = 0.0
        before = fingerprint(model)
        write(weight)
    assert fingerprint(model) != before


def means(**changes: Any) -> MeanActivations:
    generator = torch.Generator().manual_seed(0)
    z, q = (torch.randn(3, 4, 16, generator=generator) for _ in range(2))
    return MeanActivations(**{"z": z, "q": q, "trial_ids": ("a", "b"), **changes})


def one_more(x: torch.Tensor, *at: int) -> torch.Tensor:
    x = x.clone()
    x[at] += 1e-6
    return x


MEANS = {
    **{f"z of {at}": means(z=one_more(means().z, *at)) for at in [(0, 0, 0), (1, 2, 7), (2, 3, 15)]},
    **{f"q of {at}": means(q=one_more(means().q, *at)) for at in [(0, 0, 0), (1, 2, 7), (2, 3, 15)]},
    "the order in a head": means(z=means().z.flip(-1)),
    "the order of heads": means(z=means().z.flip(1)),
    "the order of layers": means(q=means().q.flip(0)),
    "z and q exchanged": means(z=means().q, q=means().z),
    "the trials": means(trial_ids=("a", "c")),
    "their order": means(trial_ids=("b", "a")),
}


@pytest.mark.parametrize("other", MEANS.values(), ids=MEANS)
def test_another_reference_is_another_run(other: MeanActivations) -> None:
    assert reference_digest(other) != reference_digest(means())
    assert reference_digest(means()) == reference_digest(means())


def test_another_trial_as_reference_is_another_run() -> None:
    z = torch.randn(3, 5, 4, 16)
    one = TrialActivations(z, "a")
    others = [TrialActivations(z.flip(at), "a") for at in range(4)]
    others += [
        TrialActivations(one_more(z, 2, 4, 3, 15), "a"),
        TrialActivations(z, "b"),
        TrialActivations(z, "a", first=1),
    ]
    assert len({reference_digest(each) for each in [one, *others, None]}) == len(others) + 2
    assert reference_digest(one) == reference_digest(TrialActivations(z.clone(), "a"))


LENSES: dict[str, Callable[[dict[str, torch.Tensor]], Any]] = {
    "turned": lambda lens: lens.update({"1.weight": lens["1.weight"].T.contiguous()}),
    "layers exchanged": lambda lens: lens.update({"1.weight": lens["2.weight"], "2.weight": lens["1.weight"]}),
    "one weight": lambda lens: lens["2.weight"][31, 31].add_(1e-3),
    "one bias": lambda lens: lens["1.bias"][0].add_(1e-3),
    "rows exchanged": lambda lens: lens.update({"2.weight": lens["2.weight"].flip(0)}),
    "another sign": lambda lens: lens["1.weight"].neg_(),
}


@pytest.mark.parametrize("change", LENSES.values(), ids=LENSES)
def test_a_tuned_lens_changed_in_place_is_another_run(tmp_path: Path, change: Callable[[Any], Any]) -> None:
    model, file = tiny("llama-gqa"), tmp_path / "lens.safetensors"
    generator = torch.Generator().manual_seed(0)
    lens = {f"{i}.weight": 0.1 * torch.randn(32, 32, generator=generator) for i in (1, 2)}
    lens |= {f"{i}.bias": torch.randn(32, generator=generator) for i in (1, 2)}
    save_file(lens, file)
    options: dict[str, Any] = {"teacher_forced": True, "progress": False, "out": tmp_path / "run", "direction": file}
    lh.score_heads(model, TRIALS, "locos", **options)
    before = Directions(model, head_geometry(model), file).identity
    lens = load_file(file)
    change(lens)
    save_file({name: tensor.contiguous() for name, tensor in lens.items()}, file)
    assert Directions(model, head_geometry(model), file).identity != before
    refused(lambda: lh.score_heads(model, TRIALS, "locos", **options), "direction: lens.safetensors", model)
