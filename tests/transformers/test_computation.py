"""Each input of an identity, changed alone, changes it; what changes no row does not."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

pytest.importorskip("transformers", exc_type=ImportError, reason="needs the extra transformers")

import torch
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama import modeling_llama

from hicache.transformers.identity import contents
from hicache.transformers.identity.computation import Identity

from . import building as base
from .drawing import FAMILIES
from .test_cache import prompt
from .worlds import World


def name_of(*models: Any) -> str:
    return Identity(models, every_call=True).now().name


class Known:
    """The identity of models that it has looked at before anything was changed."""

    def __init__(self, *models: Any) -> None:
        self._models = models
        self._identity = Identity(models, every_call=True)
        self._last = self._identity.now()

    def name(self) -> str:
        """What it says is what another one says that looks for the first time; and a call that
        began before a change of the setup is told of it."""
        now = self._identity.now()
        assert now.name == name_of(*self._models)
        assert self._identity.is_still(now)
        if now.setup != self._last.setup:
            assert not self._identity.is_still(self._last)
        self._last = now
        return now.name


@pytest.mark.one_in(64)
@pytest.mark.parametrize(("family", "dtype"), FAMILIES)
def test_each_property_changes_it_and_going_back_restores_it(
    family: str, dtype: torch.dtype
) -> None:
    world = World(family, dtype, Random(1))
    with world.types():
        known = Known(world.model)
        first = known.name()
    for name, one in world.properties.items():
        # in each of the ways in which a tensor may be written
        found = set()
        for value in [*range(1, one.values)] * 6:
            world.put(name, value)
            with world.types():
                found.add(known.name())
        assert len(found) == one.values - 1, name
        assert first not in found, name
        for _ in range(6):
            world.put(name, 0)
            with world.types():
                assert known.name() == first, name


@pytest.mark.one_in(32)
@pytest.mark.parametrize("part_bytes", [None, 5000])
@pytest.mark.parametrize("family", base.names())
def test_each_bit_of_each_tensor_counts(
    family: str, part_bytes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """part_bytes: of the parts in which tensors are read, if these are to be large."""
    if part_bytes is not None:
        monkeypatch.setattr(contents, "PART_BYTES", part_bytes)
        monkeypatch.setattr(contents, "_FEW_BYTES", 0)
    models = base.build_all(family)
    identity, draws = Identity(models, every_call=True), Random(2)
    first = identity.now().name
    for model in models:
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            values = tensor.detach().reshape(-1).view(torch.uint8).numpy()
            at, bit = draws.randrange(values.size), 1 << draws.randrange(8)
            values[at] ^= bit
            assert identity.now().name != first, name
            values[at] ^= bit
    assert identity.now().name == first


@pytest.mark.one_in(32)
@pytest.mark.parametrize("inference", [False, True])
def test_versions_tell_what_torch_counts(inference: bool) -> None:
    """Of tensors that were made in inference mode it counts nothing, so they are read again."""
    with torch.inference_mode(inference):
        model = base.build("llama")
        identity, draws = Identity([model], every_call=False), Random(4)
        tensors = [*model.parameters(), *model.buffers()]
        for _ in range(40):
            tensor, way = draws.choice(tensors), draws.randrange(3)
            with torch.no_grad():
                if way == 0:
                    tensor.view(-1)[draws.randrange(tensor.numel())] += 1.0
                elif way == 1:
                    tensor.mul_(1.5)
                else:
                    tensor.data = tensor.data + 1.0
            assert identity.now().name == name_of(model), way


@contextmanager
def flag(owner: Any, name: str, value: Any) -> Iterator[None]:
    known = getattr(owner, name, None)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if known is None:
            delattr(owner, name)
        else:
            setattr(owner, name, known)


@contextmanager
def hooked() -> Iterator[None]:
    hook = nn.modules.module.register_module_forward_hook(lambda *_: None)
    yield
    hook.remove()


@contextmanager
def put(settings: Callable[[Any], None], before: Any, after: Any) -> Iterator[None]:
    settings(after)
    try:
        yield
    finally:
        settings(before)


def other(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError


class Scaled(nn.Identity):
    alpha = 1.0


def _scaled(factor: float) -> Callable[[Any], Any]:
    return lambda x: x * factor


Scaled.forward = _scaled(1.0)  # type: ignore[method-assign]
_CELL = (Scaled.forward.__closure__ or ())[0]


ELSEWHERE: dict[str, Callable[[], Any]] = {
    "a function that the model's code calls": lambda: flag(
        modeling_llama, "apply_rotary_pos_emb", other
    ),
    "a function that such a function calls": lambda: flag(modeling_llama, "rotate_half", other),
    "a method of a class": lambda: flag(modeling_llama.LlamaMLP, "forward", other),
    "a function of torch that the model's code calls": lambda: flag(nn.functional, "linear", other),
    "a value of a class": lambda: flag(Scaled, "alpha", 2.0),
    "a property of a class": lambda: flag(modeling_llama.LlamaMLP, "beta", property(other)),
    "a method for all of a class": lambda: flag(
        modeling_llama.LlamaMLP, "gamma", classmethod(other)
    ),
    "a default of an argument": lambda: flag(modeling_llama.LlamaMLP.forward, "__defaults__", (2,)),
    "a default of a named argument": lambda: flag(
        modeling_llama.LlamaMLP.forward, "__kwdefaults__", {"x": 2}
    ),
    "another one": lambda: flag(modeling_llama.LlamaMLP.forward, "__kwdefaults__", {"x": 3}),
    "a value that a method has from around it": lambda: flag(_CELL, "cell_contents", 2.0),
    "what a function has from around it": lambda: flag(modeling_llama, "rotate_half", _scaled(2.0)),
    "the same with another number": lambda: flag(modeling_llama, "rotate_half", _scaled(3.0)),
    "the code of an attention": lambda: put(
        lambda one: ALL_ATTENTION_FUNCTIONS.register("mine", one), nn.functional.relu, other
    ),
    "a hook on every module": lambda: hooked(),
    "the default type": lambda: put(torch.set_default_dtype, torch.float32, torch.float64),
    "products in TF32": lambda: flag(torch.backends.cuda.matmul, "allow_tf32", True),
    "convolutions in TF32": lambda: flag(
        torch.backends.cudnn, "allow_tf32", not torch.backends.cudnn.allow_tf32
    ),
    "products in bfloat16 on the CPU": lambda: flag(
        torch.backends.mkldnn.matmul, "fp32_precision", "bf16"
    ),
    "products of other precision": lambda: put(
        torch.set_float32_matmul_precision, "highest", "medium"
    ),
    "deterministic algorithms": lambda: put(torch.use_deterministic_algorithms, False, True),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast to another type": lambda: torch.autocast("cpu", dtype=torch.float16),
}


@pytest.mark.one_in(32)
def test_what_is_outside_of_the_model_counts() -> None:
    ALL_ATTENTION_FUNCTIONS.register("mine", nn.functional.relu)
    model = base.build("llama")
    model.config._attn_implementation_internal = "mine"
    model.model.norm.mine = Scaled().eval()
    known = Known(model)
    first = known.name()
    found = {first}
    for what, change in ELSEWHERE.items():
        with change():
            changed = known.name()
        assert changed not in found, what
        found.add(changed)
        assert known.name() == first, what


def _named(model: Any, name: str, value: Any) -> None:
    model.model.register_buffer(name, value, persistent=False)


def _renamed(model: Any) -> None:
    layer = model.model.layers[0].self_attn
    layer.q_proj, layer.o_proj = layer.o_proj, layer.q_proj


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a setting": lambda model: setattr(model.config, "rope_theta_of_mine", 3.0),
    "a nested setting": lambda model: model.config.rope_parameters.update(rope_theta=5.0),
    "a number of a module": lambda model: setattr(model.model.norm, "variance_epsilon", 1e-3),
    "a list of a module": lambda model: setattr(model.model.norm, "mine", [1, [2, 3]]),
    "an object of a module": lambda model: setattr(model.model.norm, "mine", Random(3)),
    "a function of a module": lambda model: setattr(model.model.norm, "forward", other),
    "a buffer": lambda model: _named(model, "mine", torch.ones(2)),
    "an empty buffer": lambda model: _named(model, "mine", torch.ones(0)),
    "a tensor that is no buffer": lambda model: setattr(model.model, "mine", torch.ones(2)),
    "a module": lambda model: setattr(model.model, "mine", nn.Dropout(0.5)),
    "two modules exchanged": _renamed,
    "the mode of a module": lambda model: model.model.norm.train(),
    "the order of layers": lambda model: model.model.layers.insert(0, model.model.layers.pop(1)),
    "a layer less": lambda model: model.model.layers.pop(2),
    "a shape": lambda model: setattr(
        model.model.norm.weight, "data", model.model.norm.weight.data[None]
    ),
    "a type of the same bytes": lambda model: setattr(
        model.model.norm.weight, "data", model.model.norm.weight.data.view(torch.int32).float()
    ),
    "a hook": lambda model: model.model.norm.register_forward_hook(lambda *_: None),
    "a hook before": lambda model: model.model.norm.register_forward_pre_hook(lambda *_: None),
    "another hook": lambda model: model.model.norm.register_forward_hook(lambda *_: 1),
}


@pytest.mark.one_in(16)
def test_what_is_inside_of_the_model_counts() -> None:
    found = {name_of(base.build("llama")): "nothing"}
    for what, change in CHANGES.items():
        model = base.build("llama")
        known = Known(model)
        change(model)
        changed = known.name()
        assert changed not in found, (what, found.get(changed))
        found[changed] = what
    target, draft = base.build_all("draft")
    assert (
        len({name_of(target), name_of(draft), name_of(target, draft), name_of(draft, target)}) == 4
    )


SAME: dict[str, Callable[[Any], Any]] = {
    "other memory": lambda model: [
        setattr(one, "data", one.data.clone()) for one in model.parameters()
    ],
    "another order in memory": lambda model: setattr(
        model.lm_head.weight, "data", model.lm_head.weight.data.t().contiguous().t()
    ),
    "other parameters of the same elements": lambda model: setattr(
        model.lm_head, "weight", nn.Parameter(model.lm_head.weight.detach().clone())
    ),
    "no gradients": lambda model: model.requires_grad_(False),
    "a gradient": lambda model: model(prompt(9)).logits.sum().backward(),
    "how it generates": lambda model: setattr(model.generation_config, "temperature", 0.3),
    "its name": lambda model: setattr(model.config, "_name_or_path", "mine"),
    "a call": lambda model: model.generate(prompt(9), max_new_tokens=3),
    "hidden states that were returned": lambda model: model(prompt(9), output_hidden_states=True),
    "its own state": lambda model: model.load_state_dict(model.state_dict()),
}


@pytest.mark.one_in(16)
@pytest.mark.parametrize("what", SAME)
def test_what_changes_no_row_does_not_count(what: str) -> None:
    model = base.build("llama")
    known = Known(model)
    first = known.name()
    SAME[what](model)
    assert known.name() == first
    assert name_of(copy.deepcopy(model)) == first


def test_a_model_that_was_stored_and_read_is_the_same() -> None:
    model = base.build("gemma3")
    assert name_of(pickle.loads(pickle.dumps(model))) == name_of(model)  # noqa: S301
