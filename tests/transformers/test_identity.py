"""Each input of an identity, changed alone, changes it, and what changes no row does not; a store
never gives a model the pages of another one."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("transformers", exc_type=ImportError, reason="needs the extra transformers")

import numpy as np
import torch
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama import modeling_llama

from hicache.transformers import PrefixCache, UnsupportedModelError
from hicache.transformers.identity import contents
from hicache.transformers.identity.computation import Identity

from . import building as base
from .emptying import Streamer
from .test_cache import SIZES, both, prompt
from .test_cache_errors import refused
from .worlds import FAMILIES, World


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


@pytest.mark.parametrize(
    ("family", "part_bytes"),
    [*((family, None) for family in base.names()), ("llama", 5000), ("deepseek-v4", 5000)],
)
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


ELSEWHERE: dict[str, Callable[[], Any]] = {
    "a function that the model's code calls": lambda: flag(
        modeling_llama, "apply_rotary_pos_emb", other
    ),
    "a function that such a function calls": lambda: flag(modeling_llama, "rotate_half", other),
    "a method of a class": lambda: flag(modeling_llama.LlamaMLP, "forward", other),
    "a function of torch that the model's code calls": lambda: flag(nn.functional, "linear", other),
    "the code of an attention": lambda: put(
        lambda one: ALL_ATTENTION_FUNCTIONS.register("mine", one), nn.functional.relu, other
    ),
    "a hook on every module": lambda: hooked(),
    "the default type": lambda: put(torch.set_default_dtype, torch.float32, torch.float64),
    "products in TF32": lambda: flag(torch.backends.cuda.matmul, "allow_tf32", True),
    "products in bfloat16 on the CPU": lambda: flag(
        torch.backends.mkldnn.matmul, "fp32_precision", "bf16"
    ),
    "products of other precision": lambda: put(
        torch.set_float32_matmul_precision, "highest", "medium"
    ),
    "deterministic algorithms": lambda: put(torch.use_deterministic_algorithms, False, True),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}


def test_what_is_outside_of_the_model_counts() -> None:
    ALL_ATTENTION_FUNCTIONS.register("mine", nn.functional.relu)
    model = base.build("llama")
    model.config._attn_implementation_internal = "mine"
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
    "an object of a module": lambda model: setattr(model.model.norm, "mine", Random(3)),
    "a function of a module": lambda model: setattr(model.model.norm, "forward", other),
    "a buffer": lambda model: _named(model, "mine", torch.ones(2)),
    "a tensor that is no buffer": lambda model: setattr(model.model, "mine", torch.ones(2)),
    "an array": lambda model: setattr(model.model, "mine", np.ones(2)),
    "an array of objects": lambda model: setattr(model.model, "mine", np.array([{1}, {2}])),
    "a module": lambda model: setattr(model.model, "mine", nn.Dropout(0.5)),
    "two modules exchanged": _renamed,
    "the mode of a module": lambda model: model.model.norm.train(),
    "the order of layers": lambda model: model.model.layers.insert(0, model.model.layers.pop(1)),
    "a type of the same bytes": lambda model: setattr(
        model.model.norm.weight, "data", model.model.norm.weight.data.view(torch.int32).float()
    ),
    "a hook": lambda model: model.model.norm.register_forward_hook(lambda *_: None),
    "another hook": lambda model: model.model.norm.register_forward_hook(lambda *_: 1),
}


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
    "other parameters of the same elements": lambda model: setattr(
        model.lm_head, "weight", nn.Parameter(model.lm_head.weight.detach().clone())
    ),
    "a gradient": lambda model: model(prompt(9)).logits.sum().backward(),
    "how it generates": lambda model: setattr(model.generation_config, "temperature", 0.3),
    "its name": lambda model: setattr(model.config, "_name_or_path", "mine"),
    "a call": lambda model: model.generate(prompt(9), max_new_tokens=3),
    "its own state": lambda model: model.load_state_dict(model.state_dict()),
}


@pytest.mark.parametrize("what", SAME)
def test_what_changes_no_row_does_not_count(what: str) -> None:
    model = base.build("llama")
    known = Known(model)
    first = known.name()
    SAME[what](model)
    assert known.name() == first
    assert name_of(pickle.loads(pickle.dumps(model))) == first  # noqa: S301


# -- stores


def tuned() -> Any:
    """The same configuration, and one layer's weights a little different."""
    model = base.build("llama")
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight += 1e-3
    return model


@pytest.mark.parametrize(
    ("other", "settings", "hits", "left"),
    [
        (lambda: base.build("llama"), {}, 56, 0),
        (tuned, {}, 0, 56),
        (lambda: base.build("llama", attention="sdpa"), {}, 0, 0),
        (lambda: base.build("llama"), {"page_size": 16}, 0, 56),
        (lambda: base.build("llama"), {"revision": "mine"}, 0, 56),
    ],
    ids=["the same", "a fine-tune", "another attention", "page_size", "revision"],
)
def test_only_the_same_model_with_the_same_settings_finds_the_pages_of_a_store(
    other: Callable[[], Any], settings: dict[str, Any], hits: int, left: int, tmp_path: Path
) -> None:
    """left: of them, when the other one has deleted what is its own: that of its weights."""
    address = f"file:{tmp_path}"
    with PrefixCache(base.build("llama"), storage=address, **SIZES) as cache:
        both(cache.model, cache, prompt(60))
    with PrefixCache(other(), storage=address, **SIZES | settings) as cache:
        assert cache.match(prompt(60)) == hits
        both(cache.model, cache, prompt(60))
        cache.clear(storage=True)
        assert cache.match(prompt(60)) == 0
    with PrefixCache(base.build("llama"), storage=address, **SIZES) as cache:
        assert cache.match(prompt(60)) == left


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model: model.train(), ("eval mode", "model.eval()")),
        (lambda model: model.model.layers[1].train(), ("eval mode", "module model.layers.1")),
        (lambda model: model.to(torch.bfloat16), ("float32", "found 3 layers", "bfloat16")),
        (
            lambda model: model.model.layers[0].to("meta"),
            ("weight model.model.layers.0.", "offloaded"),
        ),
    ],
    ids=["train", "a layer in training", "type", "offloaded"],
)
def test_a_change_that_cannot_be_served_is_refused(
    change: Callable[[Any], Any], words: tuple[str, ...]
) -> None:
    model = base.build("llama")
    with PrefixCache(model, **SIZES) as cache:
        both(model, cache, prompt(60))
        change(model)
        with refused(UnsupportedModelError, *words):
            cache.generate(prompt(60), max_new_tokens=2)
        assert cache.stats.requests == 1


def test_what_a_model_computed_that_changed_meanwhile_is_not_kept() -> None:
    model = base.build("llama")

    def change(call: int) -> None:
        """In the middle of a call, and back."""
        if call in (3, 5):
            with torch.no_grad():
                model.lm_head.weight.mul_(1.01 if call == 3 else 1 / 1.01)

    with PrefixCache(model, **SIZES) as cache:
        cache.generate(prompt(60), max_new_tokens=9, do_sample=False, streamer=Streamer(change))
        assert cache.stats.unkept == 1
        assert cache.match(prompt(60)) == 0


@pytest.mark.parametrize("every_call", [True, False])
def test_weights_of_the_same_version_are_read_again_or_not(every_call: bool) -> None:
    identity = Identity([base.build("llama")], every_call)
    identity.now()
    whole = identity.contents.read_bytes
    identity.now()
    assert identity.contents.read_bytes == whole * (2 if every_call else 1)
