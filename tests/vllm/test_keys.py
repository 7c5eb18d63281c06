"""What decides the key of a stored page: everything that its bytes depend on, and nothing else."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

from hicache.core.errors import CallerError
from hicache.storage import identity
from hicache.storage.base import TIMEOUT_S
from hicache.vllm.describing import Settings, belonging, context_of
from hicache.vllm.groups import FULL, groups_of

from .engine import cache_config


class Plugged(torch.nn.Module):
    """What a plugin has registered for an architecture that vLLM knows."""


def model(place: Path, described: dict[str, Any], content: bytes, fields: dict[str, Any]) -> Any:
    place.mkdir(parents=True, exist_ok=True)
    (place / "model.safetensors").write_bytes(content)
    (place / "modeling.py").write_text(fields.get("code", ""))
    config = SimpleNamespace(to_dict=lambda: described, architectures=["A"])
    own = {"model": str(place), "revision": None, "seed": 0, "hf_config": config}
    return SimpleNamespace(**fields | own)


def digest(place: Path, blocks: int = 16, named: str = "", **changed: Any) -> str:
    """The context of an engine with keys and values apart, and a draft model."""
    fields = {"dtype": "bf16", "quantization": None, "max_model_len": 8} | changed
    changed = {name: item for name, item in changed.items() if name != "max_model_len"}
    mapped = {"AutoConfig": "modeling.A", "AutoModel": "owner/name--modeling.A"}
    config = {"hidden": 8, "rope": "default", "auto_map": mapped} | changed.get("config", {})
    weights = changed.get("weights", b"w")
    draft = model(place / "draft", {"hidden": 4}, changed.get("draft", b"d"), fields)
    vllm_config = SimpleNamespace(
        model_config=model(place / "model", config, weights, fields),
        cache_config=SimpleNamespace(**{"cache_dtype": "fp8_e4m3"} | changed),
        load_config=SimpleNamespace(**{"load_format": "auto"} | changed),
        attention_config=SimpleNamespace(**changed),
        lora_config=SimpleNamespace(**{"lora_dtype": "bf16"} | changed),
        speculative_config=SimpleNamespace(
            **{"method": "eagle"} | changed | {"draft_model_config": draft}
        ),
    )
    groups = groups_of(cache_config([(FULL, changed.get("block", 4))], blocks, 0))
    shape = (2, blocks, *changed.get("inner", (4, 8)))
    tensors = {"0.0": torch.zeros(shape, dtype=changed.get("kind", torch.uint8))}
    (place / "owner").mkdir(exist_ok=True)
    (place / "owner/modeling.py").write_text(changed.get("its_code", ""))
    folders = {"owner/name": str(place / "owner")}
    models = changed.get("models", [torch.nn.Linear(1, 1)])
    with mock.patch.object(identity, "downloaded", lambda model, _: folders.get(model)):
        belongs = belonging(vllm_config, named, models)
    return context_of(vllm_config, groups, tensors, blocks, belongs).digest


def test_the_longest_request_matters_where_angles_follow_from_it(tmp_path: Path) -> None:
    """The size of the pool never."""
    assert digest(tmp_path) == digest(tmp_path, max_model_len=9) == digest(tmp_path, blocks=32)
    rope = {"rope": "longrope"}
    assert digest(tmp_path, config=rope) != digest(tmp_path, config=rope, max_model_len=9)


FIELDS = (
    *("named", "method", "model_weights", "target_modules", "dtype", "cache_dtype", "code"),
    *("mamba_cache_dtype", "mamba_ssm_cache_dtype", "lora_dtype", "quantization", "kv_cache_dtype"),
    *("disable_sliding_window", "model_impl", "a_field_of_a_later_release", "its_code"),
)


@pytest.mark.parametrize(
    "changed",
    [
        *({name: "others"} for name in FIELDS),
        {"weights": b"x"},
        {"draft": b"e"},
        {"load_format": "dummy"},
        {"load_format": "pt"},
        {"model_loader_extra_config": {"tensorizer_uri": "others"}},
        {"ignore_patterns": ["model-1*"]},
        {"model_class_overrides": {"A": "others:A"}},
        {"models": [torch.nn.Sequential(Plugged())]},
        {"draft_load_config": SimpleNamespace(load_format="pt")},
        {"config": {"hidden": 9}},
        {"quantization_config": {"bits": 4}},
        {"block": 8},
        {"inner": (8, 4)},
        {"kind": torch.int8},
    ],
    ids=lambda item: next(iter(item)),
)
def test_what_the_bytes_depend_on_does(tmp_path: Path, changed: dict[str, Any]) -> None:
    assert digest(tmp_path) != digest(tmp_path, **changed)


def test_weights_that_are_not_there_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    config = SimpleNamespace(
        model_config=SimpleNamespace(model="owner/name", revision=None, seed=0),
        load_config=SimpleNamespace(load_format="auto"),
    )
    with pytest.raises(CallerError, match=r"files of 'owner/name' .* name with \"weights\"$"):
        belonging(config, "", [])


@pytest.mark.parametrize("form", ["tensorizer", "npcache"])
@pytest.mark.parametrize("load", ["load_format", "draft_load_config"])
def test_weights_that_come_from_elsewhere_need_a_name(tmp_path: Path, load: str, form: str) -> None:
    changed = {load: form if load == "load_format" else SimpleNamespace(load_format=form)}
    with pytest.raises(CallerError, match=rf"found '{form}'; .* name with \"weights\"$"):
        digest(tmp_path, **changed)
    assert digest(tmp_path, named="a name", **changed)


def test_a_store_gets_its_time() -> None:
    value = {"host": "1GB", "storage": "file:/data/kv"}
    assert Settings.of(value).timeout_s == TIMEOUT_S
    assert Settings.of(value | {"timeout_s": 20}).timeout_s == 20


@pytest.mark.parametrize("timeout_s", [0, -1, "20", True, float("nan"), 1e9])
def test_another_time_is_one_line(timeout_s: object) -> None:
    with pytest.raises(CallerError, match="timeout_s: expected more than 0") as caught:
        Settings.of({"host": "1GB", "timeout_s": timeout_s})
    assert "\n" not in str(caught.value)
