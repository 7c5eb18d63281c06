"""The parts of SGLang's backend: settings, pages as buffers, and what a prefix needs of pools."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hicache.core.errors import CallerError
from hicache.sglang.describing import Settings, form_of, weights_of
from hicache.sglang.storing import HostPages, prefixes

from .interface import AsymmetricPoolHost, MHATokenToKVPoolHost


def test_settings_are_read_and_sglangs_own_are_left_to_it() -> None:
    values = {"module_path": "hicache.sglang", "interface_v1": 1, "storage": "file:/data/kv"}
    assert Settings.of(values) == Settings(storage="file:/data/kv")
    settings = Settings.of(values | {"weights": "w1", "timeout_s": 20})
    assert (settings.weights, settings.timeout_s) == ("w1", 20)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, 'expected "storage"'),
        ({"storage": "file:/d", "interface_v1": 0}, 'expected "interface_v1": 1'),
        ({"storage": "/data/kv"}, "for a folder write file:/data/kv"),
        ({"storage": "file:/d", "storage_sise": "1G"}, "found 'storage_sise'"),
        ({"storage": "file:/d", "weights": 3}, "weights: expected a text, found 3"),
        ({"storage": ["file:/d"]}, "storage: expected a text"),
        ({"storage": "file:/d", "timeout_s": 0}, "timeout_s: expected more than 0"),
        ({"storage": "file:/d", "timeout_s": "20"}, "timeout_s: expected more than 0"),
    ],
)
def test_wrong_settings_are_one_line(values: dict[str, Any], text: str) -> None:
    with pytest.raises(CallerError) as caught:
        Settings.of({"interface_v1": 1} | values)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_pool_without_flat_pages_is_refused() -> None:
    with pytest.raises(CallerError, match="host pool kv: expected pages as bytes"):
        HostPages("kv", AsymmetricPoolHost("page_first"))


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
    values = {
        "model_path": str(place / "model"),
        "speculative_draft_model_path": str(place / "draft"),
        "lora_paths": [f"a={place / 'adapter'}"],
        "load_format": "auto",
    }
    weights = weights_of(SimpleNamespace(**values | changed), named, {})
    form = HostPages("kv", MHATokenToKVPoolHost("page_first")).form
    return form_of("model", weights, form | changed.get("form", {}), changed.get("ranks", 1)).digest


FIELDS = (
    *("model_loader_extra_config", "speculative_draft_load_format", "dtype", "quantization"),
    *("quantization_param_path", "modelopt_quant", "quantize_and_serve", "rl_quant_profile"),
    *("torchao_config", "custom_weight_loader", "speculative_draft_window_size", "fp4_backend"),
    *("mamba_ssm_dtype", "speculative_draft_model_quantization", "forward_hooks", "weight_version"),
    *("kv_cache_dtype", "json_model_override_args", "flashinfer_a2a_dispatch_type"),
    *("enable_w4a4_mxfp4_megamoe", "moe_runner_backend", "context_length", "speculative_algorithm"),
)


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
        {"load_format": "dummy"},
        {"load_format": "pt"},
        {"lora_paths": []},
        {"named": "another"},
        *({name: "pt"} for name in FIELDS),
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
        names = ("swa", "mamba")[: draws.randrange(3)]
        pools = {
            name: (draws.randrange(4), [draws.random() < 0.7 for _ in range(full)])
            for name in names
        }
        ends = {
            name: [
                end
                for end in range(1, full + 1)
                if all(there[max(0, end - last) if last else 0 : end])
            ]
            for name, (last, there) in pools.items()
        }
        every, longest = prefixes(full, pools)
        assert every == [end for end in range(1, full + 1) if all(end in x for x in ends.values())]
        assert longest == {name: end[-1] for name, end in ends.items() if end}
