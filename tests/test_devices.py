"""The pretended devices refuse what torch refuses on a GPU, and let through what it lets through."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.devices import CPU, FIRST, SECOND, Elsewhere, on_one, spread


def made(device: torch.device) -> Tensor:
    return torch.arange(6.0, device=device).reshape(2, 3)


ROWS = torch.tensor([0, 1])
MASK = torch.tensor([True, False])

MIXTURES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "operator": lambda x, y: x + y,
    "operator with a single number": lambda x, y: y + x[0, 0],
    "in place": lambda x, y: x.mul_(y),
    "matrix product": lambda x, y: x @ y.T,
    "einsum": lambda x, y: torch.einsum("ab,cb->ac", x, y),
    "cat": lambda x, y: torch.cat([x, y]),
    "stack of single numbers": lambda x, y: torch.stack([x[0, 0], y[0, 0]]),
    "where": lambda x, y: torch.where(x > 1, x, y),
    "where by a condition": lambda x, y: torch.where(y > 1, x, x),
    "by keyword": lambda x, y: torch.add(input=x, other=y),
    "clamp": lambda x, y: x.clamp(min=y),
    "gather": lambda x, y: x.gather(1, y.long().clamp(max=2)),
    "embedding": lambda x, y: nn.functional.embedding(y.long(), x.repeat(3, 1)),
    "equal": lambda x, y: torch.equal(x, y),
    "isin": lambda x, y: torch.isin(x, y),
    "index of another device": lambda x, y: y[x[0].long().clamp(max=1)],
    "written by an index": lambda x, y: x.__setitem__(ROWS, y),
    "written by a list": lambda x, y: x.__setitem__([0, 1], y),
    "masked": lambda x, y: x.masked_fill(y > 1, 0),
    "linear": lambda x, y: nn.functional.linear(x, y),
    "norm": lambda x, y: nn.functional.layer_norm(x, (3,), y[0]),
    "cross entropy": lambda x, y: nn.functional.cross_entropy(x, y[:, 0].long().clamp(max=2)),
    "attention": lambda x, y: nn.functional.scaled_dot_product_attention(x[None], y[None], y[None]),
    "module": lambda x, y: nn.Linear(3, 3).to(x.device)(y),
    "gradient": lambda x, y: torch.autograd.grad((x.requires_grad_() ** 2).sum(), x)[0] + y,
}

PERMITTED: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], int]] = {
    "number": (lambda x, y: x + 1, 0),
    "one of the CPU": (lambda x, y: x * torch.tensor(2.0) + y.cpu()[0, 0], 0),
    "moved by name": (lambda x, y: x.to("cuda:1") + y, 1),
    "moved by number": (lambda x, y: x.to(1) + y, 1),
    "moved by keyword": (lambda x, y: x.to(device=y.device, dtype=torch.float64) + y, 1),
    "moved to another": (lambda x, y: x.to(y) + y, 1),
    "index of the CPU": (lambda x, y: x[ROWS] + x[MASK], 0),
    "copied": (lambda x, y: x.copy_(y), 0),
    "written by a slice": (lambda x, y: (x.__setitem__(slice(0, 2), y), x)[1], 0),
    "a shape": (lambda x, y: x[:1].expand_as(y), 0),
    "made like it": (lambda x, y: torch.zeros_like(x) + x.new_ones(3) + torch.ones(3, device=x.device), 0),
    "made from a list": (lambda x, y: x + torch.tensor([1.0, 2, 3], device=x.device), 0),
    "a view": (lambda x, y: x.T.detach().float().T + x, 0),
    "of several results": (lambda x, y: x.topk(2).values + x.split(2, 1)[0], 0),
    "parameter": (lambda x, y: nn.Parameter(x).data + copy.deepcopy(nn.Parameter(x)), 0),
}


@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize("other", [CPU, SECOND], ids=str)
def test_a_mixture_is_refused(mixture: str, other: torch.device) -> None:
    with Elsewhere():
        MIXTURES[mixture](made(FIRST), made(FIRST))
        with pytest.raises(RuntimeError, match="same device"):
            MIXTURES[mixture](made(FIRST), made(other))


@pytest.mark.parametrize("what", PERMITTED)
def test_what_torch_permits_is_permitted_and_computed(what: str) -> None:
    do, place = PERMITTED[what]
    with Elsewhere():
        found = do(made(FIRST), made(SECOND))
        assert found.device == [FIRST, SECOND][place]
        assert found.is_cuda
        assert found.cpu().device == CPU
    torch.testing.assert_close(found, on_the_cpu(do), check_dtype=False)


def on_the_cpu(do: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The same with both on the CPU, where everything is already that is moved."""
    to = Tensor.to
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "to", lambda x, *args, **kwargs: to(x, kwargs.get("dtype", x.dtype)))
        return do(made(CPU), made(CPU))


def test_only_the_cpu_hands_out_arrays() -> None:
    with Elsewhere():
        x = made(FIRST)
        for convert in (lambda: x.numpy(), lambda: np.asarray(x)):
            with pytest.raises(TypeError, match=r"can't convert cuda:0 device type tensor to numpy"):
                convert()
        assert x.cpu().numpy().tolist() == x.tolist() == [[0, 1, 2], [3, 4, 5]]
        assert float(x[1, 2]) == x.max().item() == 5


def test_a_generator_draws_on_its_own_device() -> None:
    with Elsewhere(), pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        torch.randn(3, device=FIRST, generator=torch.Generator())


def test_a_moved_tensor_is_a_copy() -> None:
    with Elsewhere():
        x = made(FIRST)
        assert x.to(FIRST) is x
        x.cpu()[0] = 7
        assert x[0, 0] == 0
        assert x.cuda() is x


def test_gradients_are_where_their_tensors_are() -> None:
    with Elsewhere():
        layer = nn.Linear(3, 3).to(SECOND)
        x, seen = made(FIRST).requires_grad_(), []
        layer.register_full_backward_hook(lambda module, into, out: seen.append((into[0].device, out[0].device)))
        x.register_hook(lambda gradient: seen.append(gradient.device))
        layer(x.to(SECOND)).sum().backward()
        assert seen == [(SECOND, SECOND), FIRST]
        assert x.grad is not None
        assert layer.weight.grad is not None
        assert (x.grad.device, layer.weight.grad.device) == (FIRST, SECOND)


def test_a_mixture_in_a_hook_on_a_gradient_is_refused() -> None:
    with Elsewhere():
        layer = nn.Linear(3, 3).to(FIRST)
        layer.register_full_backward_hook(lambda module, into, out: (into[0] + made(SECOND),))
        with pytest.raises(RuntimeError, match="same device"):
            layer(made(FIRST).requires_grad_()).sum().backward()


def test_models_are_where_they_were_put() -> None:
    with Elsewhere():
        assert {weights.device for weights in on_one("gpt2").parameters()} == {FIRST}
        model = spread("llama-gqa")
        assert [block.attn.W_O.device.index for block in model.blocks] == [0, 1, 1]
        assert (model.ln_final.weight.device.index, model.W_U.device.index) == (2, 2)
        assert spread("gemma3").W_U.device == FIRST  # The embedding.
        tokens = torch.arange(5, 15, device=FIRST)[None]
        assert model(tokens).device == FIRST
        with pytest.raises(RuntimeError, match="same device"):
            _ = model.blocks[1].attn.W_O @ model.W_U
