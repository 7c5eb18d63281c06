"""Each input of an identity, changed alone, changes it or is refused, and what changes no row does
not; a store never gives a model the pages of another one."""

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
import transformers
from torch import nn

from hicache.transformers import PrefixCache, UnsupportedModelError, identity
from hicache.transformers.identity import Identity

from . import building as base
from .building import Streamer
from .test_cache import SIZES, both, prompt
from .test_cache_errors import refused


def name_of(model: Any) -> str:
    return Identity(model).now().name


class Known:
    """The identity of models that it has looked at before anything was changed."""

    def __init__(self, model: Any) -> None:
        self._model, self._identity = model, Identity(model)
        self._last = self._identity.now()

    def name(self) -> str:
        """What it says is what another one says that looks for the first time; and a call that
        began before a change is told of it."""
        now = self._identity.now()
        assert now.name == name_of(self._model)
        assert self._identity.is_still(now)
        assert now.name == self._last.name or not self._identity.is_still(self._last)
        self._last = now
        return now.name


@pytest.mark.parametrize(
    ("family", "part_bytes"), [*((family, None) for family in base.names()), ("llama", 5000)]
)
def test_each_bit_of_each_tensor_counts(
    family: str, part_bytes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """part_bytes: of the parts in which tensors are read, if these are to be small."""
    monkeypatch.setattr(identity, "_PART_BYTES", part_bytes or identity._PART_BYTES)
    model, draws = base.build(family), Random(2)
    first = name_of(model)
    tensors = [*model.named_parameters(), *model.named_buffers()]
    for name, tensor in draws.sample(tensors, min(12, len(tensors))):
        values = tensor.detach().reshape(-1).view(torch.uint8).numpy()
        at, bit = draws.randrange(values.size), 1 << draws.randrange(8)
        values[at] ^= bit
        assert name_of(model) != first, name
        values[at] ^= bit
    assert name_of(model) == first


@pytest.mark.parametrize("inference", [False, True])
def test_weights_are_read_once_and_when_they_were_written(inference: bool) -> None:
    """Of tensors that were made in inference mode torch counts nothing, so they are read again."""
    with torch.inference_mode(inference):
        model = base.build("llama")
        known, draws = Identity(model), Random(4)
        known.now()
        full = known.read_bytes
        known.now()
        assert known.read_bytes == full * (2 if inference else 1)
        tensors = [*model.parameters(), *model.buffers()]
        for _ in range(40):
            tensor, way = draws.choice(tensors), draws.randrange(4)
            with torch.no_grad():
                if way == 0:
                    tensor.view(-1)[draws.randrange(tensor.numel())] += 1.0
                elif way == 1:
                    tensor.mul_(1.5)
                elif way == 2:
                    tensor.data = tensor.data + 1.0
                else:  # which torch does not count, throughout, as an optimizer would
                    tensor.data.mul_(0.9)
            assert known.now().name == name_of(model), way


@contextmanager
def flag(owner: Any, name: str, value: Any) -> Iterator[None]:
    known = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, known)


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
    "a pass of a class": lambda: flag(
        transformers.models.llama.modeling_llama.LlamaMLP, "forward", other
    ),
    "the code of an attention": lambda: put(
        lambda item: transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS.register("mine", item),
        nn.functional.relu,
        other,
    ),
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
    transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS.register("mine", nn.functional.relu)
    model = base.build("llama")
    model.config._attn_implementation_internal = "mine"
    known = Known(model)
    first = known.name()
    result = {first}
    for what, change in ELSEWHERE.items():
        with change():
            changed = known.name()
        assert changed not in result, what
        result.add(changed)
        assert known.name() == first, what


def _named(model: Any, name: str, value: Any) -> None:
    model.model.register_buffer(name, value, persistent=False)


def _exchanged(model: Any) -> None:
    layer = model.model.layers[0].self_attn
    layer.q_proj, layer.o_proj = layer.o_proj, layer.q_proj


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a setting": lambda model: setattr(model.config, "rope_theta_of_mine", 3.0),
    "a nested setting": lambda model: model.config.rope_parameters.update(rope_theta=5.0),
    "an attribute": lambda model: setattr(model.model.norm, "mine", {"a": [1, 2.0]}),
    "a buffer": lambda model: _named(model, "mine", torch.ones(2)),
    "a tensor that is no buffer": lambda model: setattr(model.model, "mine", torch.zeros(2)),
    "a module": lambda model: setattr(model.model, "mine", nn.Dropout(0.5)),
    "two modules exchanged": _exchanged,
    "the mode of a module": lambda model: model.model.norm.train(),
    "the order of layers": lambda model: model.model.layers.insert(0, model.model.layers.pop(1)),
    "a type of the same bytes": lambda model: setattr(
        model.model.norm.weight, "data", model.model.norm.weight.data.view(torch.int32).float()
    ),
}
UNKNOWN: dict[str, Callable[[Any], Any]] = {
    "a hook": lambda model: model.model.norm.register_forward_hook(lambda *_: None),
    "an object": lambda model: setattr(model.model.norm, "mine", Random(3)),
    "a function": lambda model: setattr(model.model.norm, "forward", other),
    "a method": lambda model: setattr(model.model.norm, "mine", model.lm_head.forward),
    "an array": lambda model: setattr(model.model, "mine", np.ones(2)),
    "a module in a list": lambda model: setattr(model.model, "mine", [nn.Linear(2, 2)]),
    "a tensor without elements": lambda model: model.lm_head.to("meta"),
}


def test_what_is_inside_of_the_model_counts_or_is_refused() -> None:
    result = {name_of(base.build("llama")): "nothing"}
    for what, change in CHANGES.items():
        model = base.build("llama")
        known = Known(model)
        change(model)
        changed = known.name()
        assert changed not in result, (what, result.get(changed))
        result[changed] = what
    for change in UNKNOWN.values():
        model = base.build("llama")
        change(model)
        with refused(UnsupportedModelError, "model.", "call model.generate"):
            name_of(model)
    hook = nn.modules.module.register_module_forward_hook(lambda *_: None)
    with refused(UnsupportedModelError, "a hook of all modules"):
        name_of(base.build("llama"))
    hook.remove()


SAME: dict[str, Callable[[Any], Any]] = {
    "other memory": lambda model: [
        setattr(parameter, "data", parameter.data.clone()) for parameter in model.parameters()
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
    ],
    ids=["the same", "a fine-tune", "another attention", "page_size"],
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
        (lambda model: model.model.layers[1].train(), ("eval mode", "module 'model.layers.1'")),
        (lambda model: model.to(torch.bfloat16), ("the pools", "PrefixCache")),
    ],
    ids=["a layer in training", "type"],
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
