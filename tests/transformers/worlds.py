"""Models that a drawn test changes, one property at a time, in the ways in which a program may."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple

import torch
from torch import nn

from . import building as base

FAMILIES = (("llama", torch.float32), ("llama", torch.bfloat16), ("gemma3", torch.float32))


class Property(NamedTuple):
    """values: how many it may have; 0 is as built. put: gives it one of them. served: the values
    with which a cache must serve; it may refuse the others."""

    values: int
    put: Callable[[int], None]
    served: tuple[int, ...] = (0, 1, 2)


class World:
    """One model. state: the value of each property, by name."""

    def __init__(self, family: str, dtype: torch.dtype, draws: Random) -> None:
        self.model = _model(family, dtype)
        self.autocast: torch.dtype | None = None
        self._draws, self._dtype = draws, dtype
        self._layer = self.model.model.layers[0]
        self._attention = self._layer.self_attn
        self._hook: Any = None
        rope = next(one for one, _ in self.model.model.rotary_emb.named_buffers())
        self._changes: dict[str, tuple[str, Callable[[torch.Tensor], Any]]] = {
            "word": ("model.embed_tokens.weight", lambda one: one[9:12].add_(1.0)),
            "norm": ("model.layers.0.input_layernorm.weight", lambda one: one[:9].add_(3.0)),
            "element": (f"{_PROJECTION}.weight", lambda one: one[1, 1].add_(9.0)),
            "angles": (f"model.rotary_emb.{rope}", lambda one: one.mul_(0.5)),
        }
        tensors = (*self.model.named_parameters(), *self.model.named_buffers())
        self._first = {name: one.detach().clone() for name, one in tensors}
        self.properties = self._made()
        self.state = dict.fromkeys(self.properties, 0)

    def put(self, name: str, value: int) -> None:
        self.state[name] = value
        self.properties[name].put(value)

    @property
    def served(self) -> bool:
        """Whether a cache must serve the model as it is."""
        return all(self.state[name] in one.served for name, one in self.properties.items())

    @contextmanager
    def types(self) -> Iterator[None]:
        """The types of a call, and the settings of torch, which other models share."""
        torch.set_float32_matmul_precision("medium" if self.state["precision"] else "highest")
        enabled = self.autocast is not None
        try:
            with torch.autocast("cpu", dtype=self.autocast or torch.bfloat16, enabled=enabled):
                yield
        finally:
            torch.set_float32_matmul_precision("highest")

    def _made(self) -> dict[str, Property]:
        tensors = {
            name: Property(3, lambda value, name=name: self._change(name)) for name in self._changes
        }
        return {
            **tensors,
            **self._attributes(),
            "hook": Property(2, self._steer, (0,)),
            "attention": Property(
                2, lambda one: self.model.set_attn_implementation(("eager", "sdpa")[one])
            ),
            "train": Property(2, lambda one: self.model.train(bool(one)), (0,)),
            "autocast": Property(2, self._cast),
            "type": Property(2, self._convert, (0,)),
            "precision": Property(2, lambda one: None),
        }

    def _attributes(self) -> dict[str, Property]:
        """Numbers of modules."""
        norm, scaling = self._layer.input_layernorm, self._attention.scaling
        eps = "eps" if hasattr(norm, "eps") else "variance_epsilon"
        return {
            "scaling": Property(
                3, lambda one: setattr(self._attention, "scaling", scaling * (1.0, 3.0, 0.2)[one])
            ),
            "eps": Property(3, lambda one: setattr(norm, eps, (1e-6, 0.5, 4.0)[one])),
        }

    def _steer(self, value: int) -> None:
        if value and self._hook is None:
            embeddings = self.model.model.embed_tokens
            self._hook = embeddings.register_forward_hook(lambda _, __, output: output + 0.5)
        elif not value and self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _cast(self, value: int) -> None:
        self.autocast = (None, torch.bfloat16)[value]

    def _convert(self, value: int) -> None:
        self.model.to((self._dtype, torch.float16)[value])
        if not value:
            for name in self._first:
                self._write(name, self._first[name].clone(), _REPLACE)
            for name in self._changes:
                self._change(name)

    def _change(self, name: str) -> None:
        """Write a tensor anew in a drawn way, changed as often as its property says."""
        path, change = self._changes[name]
        wanted = self._first[path].clone()
        for _ in range(self.state[name]):
            change(wanted)
        if not self.state["type"]:  # otherwise when that ends
            self._write(path, wanted, self._draws.randrange(WAYS))

    def _write(self, path: str, wanted: torch.Tensor, way: int) -> None:
        owner, _, last = path.rpartition(".")
        module = self.model.get_submodule(owner)
        tensor = getattr(module, last)
        if way == 0:
            with torch.no_grad():
                tensor.copy_(wanted)
        elif way == 1:
            tensor.data = wanted
        elif way == 2:
            self.model.load_state_dict({path: wanted}, strict=False)
            if not isinstance(tensor, nn.Parameter):  # which has no buffers that are not stored
                tensor.copy_(wanted)
        elif way == _REPLACE:
            made = nn.Parameter(wanted) if isinstance(tensor, nn.Parameter) else wanted
            for one in self.model.modules():  # in all that share it
                for held in (one._parameters, one._buffers):
                    held.update({name: made for name, there in held.items() if there is tensor})
        else:
            with torch.inference_mode():
                tensor.copy_(wanted)


WAYS, _REPLACE = 5, 3
_PROJECTION = "model.layers.0.self_attn.v_proj"


def _model(family: str, dtype: torch.dtype) -> Any:
    """A small model of a family, with one layer or two."""
    config = base.configuration(family)
    config.num_hidden_layers = 1
    if family == "gemma3":
        config.num_hidden_layers, config.layer_types = 2, ["sliding_attention", "full_attention"]
    model = base.built(config, dtype=dtype)
    model.generation_config.pad_token_id = 0
    model.generation_config.eos_token_id = None
    return model
