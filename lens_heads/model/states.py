"""Caches of layers that keep a state instead of keys and values: linear attention, Mamba, short convolutions.

Unlike transformers' own, they never write into a tensor that another cache may hold, and can go back to a marked position.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import (
    DummyLayer,
    DynamicLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionLayer,
)

_STATES = ("conv_states", "recurrent_states")
States = tuple["Own", "Own"]


class Own(dict[int, Any]):
    """Tensors by number. What is read is a copy that stays here: the step of a single token writes into its state in place."""

    def __getitem__(self, at: int) -> Any:
        held = super().__getitem__(at)
        if held is not None:
            held = held.clone()
            self[at] = held
        return held


def store_for(config: Any) -> DynamicCache:
    """An empty cache with a layer of the right kind for every layer of a model; windows keep all positions, as in `Cache`."""
    store = DynamicCache(config=config)
    store.layers = [_own(layer) for layer in store.layers]
    return store


def _own(layer: Any) -> Any:
    if isinstance(layer, DummyLayer):
        return layer
    if isinstance(layer, LinearAttentionAndFullAttentionLayer):
        return StatesBesideKeys(layer.number_of_states)
    return StateLayer(layer.number_of_states) if isinstance(layer, LinearAttentionLayer) else DynamicLayer()


class StateLayer(LinearAttentionLayer):
    """The states of one layer, and those at marked positions."""

    def __init__(self, number_of_states: int = 1) -> None:
        super().__init__(number_of_states=number_of_states)
        self.conv_states: Any
        self.recurrent_states: Any
        self.record_past = True  # Else a single token would write into the convolution's state in place.
        self.conv_states, self.recurrent_states = Own(self.conv_states), Own(self.recurrent_states)
        self.marked: dict[int, States] = {}
        self.keys: Tensor | None = None
        """What linear heads read of every position, where a model shows them."""

    def __copy__(self) -> StateLayer:
        """Another layer with tables of its own, which updates write into."""
        other = object.__new__(type(self))
        vars(other).update({name: type(one)(one) if isinstance(one, dict) else one for name, one in vars(self).items()})
        return other

    def update_conv_state(
        self, conv_states: Tensor, state_idx: int = 0, conv_kernel_size: int | None = None, **_: Any
    ) -> Tensor:
        before = self.conv_states.get(state_idx)
        size = self.conv_kernel_size[state_idx] or conv_kernel_size or conv_states.shape[-1]
        whole = conv_states if before is None else torch.cat([before, conv_states], -1)
        self.conv_kernel_size[state_idx], self.conv_states[state_idx] = size, whole[..., -size:]
        self.is_conv_states_initialized[state_idx] = self.has_previous_state[state_idx] = True
        return whole

    def update_recurrent_state(self, recurrent_states: Tensor, state_idx: int = 0, **_: Any) -> Tensor:
        self.recurrent_states[state_idx] = recurrent_states
        self.is_recurrent_states_initialized[state_idx] = True
        return recurrent_states

    def mark(self, length: int) -> None:
        """Keep the states as they are now, after so many tokens."""
        self.marked[length] = (Own(self.conv_states), Own(self.recurrent_states))

    def back(self, length: int) -> None:
        """Go back to the states after so many tokens, which were marked."""
        self.conv_states, self.recurrent_states = map(Own, self.marked[length])
        self.marked = {at: states for at, states in self.marked.items() if at <= length}

    def change(self, function: Callable[[Tensor], Tensor]) -> None:
        """Change every tensor, first of all its rows."""

        def changed(states: Own) -> Own:
            return Own({at: None if x is None else function(x) for at, x in states.items()})

        self.conv_states, self.recurrent_states = changed(self.conv_states), changed(self.recurrent_states)
        self.marked = {at: (changed(one), changed(other)) for at, (one, other) in self.marked.items()}

    def complete(self, fill: Callable[[Tensor, Tensor], Tensor], unchanged: StateLayer) -> None:
        """Change every tensor by that of another layer; a state that is not there yet is the other's."""
        for name in _STATES:
            mine, theirs = getattr(self, name), getattr(unchanged, name)
            for at, x in theirs.items():
                held = mine.get(at)
                mine[at] = x if held is None or x is None else fill(held, x)


def stepped(model: Any, cache: Any) -> list[tuple[Any, Callable[..., Any]]]:
    """(mixer, forward) of mixers that take several tokens only from the beginning of a text (Mamba 1, in Jamba), each with a
    forward that goes on from a state, token by token; none for a cache that is empty."""
    mixers = (module for module in model.original_model.modules() if type(module).__name__ == "JambaMambaMixer")
    return [(mixer, partial(_stepping, mixer, mixer.forward)) for mixer in mixers] if len(cache) else []


def _stepping(mixer: Any, run: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    named = "hidden_states" in kwargs
    x, rest = (kwargs.pop("hidden_states"), args) if named else (args[0], args[1:])
    mask, layer = kwargs.pop("attention_mask", None), kwargs["cache_params"].layers[mixer.layer_idx]
    steps = []
    for at, token in enumerate(x.split(1, 1)):
        before = copy.copy(layer)
        steps.append(run(token, *rest, attention_mask=None, **kwargs))
        if mask is not None:  # Padding is no step, which a mask of a single column would not say.
            padding = mask[:, at - x.shape[1]] == 0
            layer.complete(lambda now, then, padding=padding: torch.where(_over(padding, now), then, now), before)
    return torch.cat(steps, 1)


def _over(rows: Tensor, x: Tensor) -> Tensor:
    return rows.view(-1, *[1] * (x.ndim - 1))


class StatesBesideKeys(StateLayer, LinearAttentionAndFullAttentionLayer):
    """Both, of a layer whose attention has another mixer beside it (Falcon-H1)."""
