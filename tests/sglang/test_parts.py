"""The parts of SGLang's backend: settings, pages as buffers, and what a prefix needs of pools."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hicache.core.errors import CallerError
from hicache.sglang.describing import Settings, form_of, weights_of
from hicache.sglang.storing import HostPages, Wanted, restorable
from hicache.storage.base import StorageOptions

from .interface import AsymmetricPoolHost, MambaPoolHost, MHATokenToKVPoolHost


def test_settings_are_read_and_sglangs_own_are_left_to_it() -> None:
    given = {"module_path": "hicache.sglang", "interface_v1": 1, "storage": "file:/data/kv"}
    assert Settings.of(given) == Settings("file:/data/kv")
    found = Settings.of(given | {"storage_size": "1GB", "weights": "w1", "timeout_s": 20})
    assert (found.storage_size, found.weights) == (10**9, "w1")
    assert found.options == StorageOptions(size_bytes=10**9, timeout_s=20)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, 'expected "storage"'),
        ({"storage": "file:/d", "interface_v1": 0}, 'expected "interface_v1": 1'),
        ({"storage": "/data/kv"}, "for a folder write file:/data/kv"),
        ({"storage": "file:/d", "storage_sise": "1G"}, "found 'storage_sise'"),
        ({"storage": "file:/d", "storage_size": "much"}, "expected bytes such as 4096"),
        ({"storage": "file:/d", "weights": 3}, "weights: expected a text, found 3"),
        ({"storage": ["file:/d"]}, "storage: expected a text"),
        ({"storage": "file:/d", "timeout_s": 0}, "timeout_s: expected more than 0"),
        ({"storage": "file:/d", "timeout_s": "20"}, "timeout_s: expected more than 0"),
    ],
)
def test_wrong_settings_are_one_line(given: dict[str, Any], text: str) -> None:
    with pytest.raises(CallerError) as caught:
        Settings.of({"interface_v1": 1} | given)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("layout", ["layer_first", "page_first"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float32])
def test_a_page_is_the_pools_memory_in_the_order_of_its_flat_page(
    layout: str, dtype: torch.dtype
) -> None:
    pool = MHATokenToKVPoolHost(layout, dtype=dtype)
    pages = HostPages("kv", pool)
    assert pages.in_place
    for start in (0, 12):
        flat = pool.get_data_page(start).view(torch.uint8).numpy().tobytes()
        assert b"".join(map(bytes, pages.held(start))) == flat
        assert len(flat) == pages.page_bytes
    room = pages.room(4)
    for part in room.value:
        part[:] = bytes(part.nbytes)
    pages.arrived(4, room)
    assert not pool.get_data_page(4).to(torch.float32).any()
    assert pool.get_data_page(8).to(torch.float32).any()


def test_a_page_of_several_tensors_is_copied() -> None:
    pool = MambaPoolHost()
    pages = HostPages("mamba", pool)
    assert not pages.in_place
    assert pages.per_rank
    before = bytes(pages.held(3)[0])
    room = pages.room(5)
    room.value[0][:] = before
    assert bytes(pages.held(5)[0]) != before
    pages.arrived(5, room)
    assert bytes(pages.held(5)[0]) == before


def test_a_pool_without_flat_pages_is_refused() -> None:
    with pytest.raises(CallerError, match="host pool kv: expected one whose pages can be had"):
        HostPages("kv", AsymmetricPoolHost("page_first"))


def test_slots_of_another_number_are_no_pages() -> None:
    pages = HostPages("kv", MHATokenToKVPoolHost("page_first"))
    assert pages.starts(2, torch.tensor([4, 5, 6, 7, 0, 1, 2, 3])) == [4, 0]
    assert pages.starts(2, torch.arange(4)) == []
    assert pages.starts(1, None) == []


def digest(place: Path, named: str = "", **changed: Any) -> str:
    """The context of a pool of a server with a draft model and an adapter."""
    files = {
        "model/model.safetensors": "w",
        "model/config.json": '{"auto_map": {"AutoModel": "modeling.A"}}',
        "model/modeling.py": "1",
        "draft/model.safetensors": "d",
        "draft/config.json": "{}",
        "adapter/adapter_model.safetensors": "a",
        "adapter/adapter_config.json": '{"lora_alpha": 16}',
    }
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(changed.get(name, content))
    given = {
        "model_path": str(place / "model"),
        "speculative_draft_model_path": str(place / "draft"),
        "lora_paths": [f"a={place / 'adapter'}"],
        "load_format": "auto",
    }
    weights = weights_of(SimpleNamespace(**given | changed), named, lambda *_: None, {})
    form = HostPages("kv", MHATokenToKVPoolHost("page_first")).form
    return form_of("model", weights, form | changed.get("form", {}), changed.get("ranks", 1)).digest


@pytest.mark.parametrize("named", ["", "a name"])
@pytest.mark.parametrize(
    "changed",
    [
        {"model/model.safetensors": "x"},
        {"model/config.json": '{"rope_theta": 1}'},
        {"model/modeling.py": "2"},
        {"draft/model.safetensors": "e"},
        {"draft/config.json": '{"rope_theta": 1}'},
        {"adapter/adapter_model.safetensors": "b"},
        {"adapter/adapter_config.json": '{"lora_alpha": 64}'},
        {"lora_paths": []},
        {"named": "another"},
        {"load_format": "dummy"},
        {"load_format": "pt"},
        {"model_loader_extra_config": '{"uri": "others"}'},
        {"speculative_draft_load_format": "pt"},
        {"dtype": "half"},
        {"quantization": "awq"},
        {"quantization_param_path": "scales"},
        {"modelopt_quant": "fp8"},
        {"quantize_and_serve": True},
        {"rl_quant_profile": "profile"},
        {"torchao_config": "int4wo-128"},
        {"custom_weight_loader": ["others.load"]},
        {"speculative_draft_window_size": 512},
        {"mamba_ssm_dtype": "bfloat16"},
        {"speculative_draft_model_quantization": "fp8"},
        {"forward_hooks": [{"name": "steer"}]},
        {"kv_cache_dtype": "fp8_e4m3"},
        {"json_model_override_args": '{"rope_theta": 1}'},
        {"weight_version": "2"},
        {"flashinfer_a2a_dispatch_type": "nvfp4"},
        {"enable_w4a4_mxfp4_megamoe": True},
        {"fp4_gemm_runner_backend": "marlin"},
        {"moe_runner_backend": "marlin"},
        {"context_length": 9},
        {"speculative_algorithm": "EAGLE"},
        {"form": {"layout": "layer_first"}},
        {"form": {"page_size": 8}},
        {"form": {"page_bytes": 8}},
        {"ranks": 2},
    ],
    ids=str,
)
def test_each_part_of_the_identity_changes_it(
    tmp_path: Path, named: str, changed: dict[str, Any]
) -> None:
    files_of_weights = {"model/model.safetensors", "draft/model.safetensors", "load_format"}
    files_of_weights |= {"model_loader_extra_config", "speculative_draft_load_format"}
    files_of_weights |= {"custom_weight_loader"}
    same = digest(tmp_path, named) == digest(tmp_path, **{"named": named} | changed)
    assert same == bool(named and files_of_weights & set(changed))


@pytest.mark.parametrize("load", ["load_format", "speculative_draft_load_format"])
def test_weights_that_come_from_elsewhere_need_a_name(tmp_path: Path, load: str) -> None:
    with pytest.raises(CallerError, match=r"found 'remote_instance'; .* name with \"weights\"$"):
        digest(tmp_path, **{load: "remote_instance"})
    assert digest(tmp_path, "a name", **{load: "remote_instance"})


def test_drawn_chains_have_the_prefixes_that_sglangs_file_backend_finds() -> None:
    """Against the rule as it is written there: every page, or the last ones, of each length."""
    draws = random.Random(5)
    for _ in range(2000):
        full = draws.randrange(9)
        wanted = [
            Wanted(name, draws.randrange(4)) for name in ("swa", "mamba")[: draws.randrange(3)]
        ]
        there = [[draws.random() < 0.7 for _ in range(full)] for _ in wanted]
        every = [
            end
            for end in range(1, full + 1)
            if all(
                all(pages[max(0, end - one.last) if one.last else 0 : end])
                for one, pages in zip(wanted, there, strict=True)
            )
        ]
        found = restorable("kv", full, wanted, there)
        assert found.every == every
        assert found.pages == max(every, default=0)
