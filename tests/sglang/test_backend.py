"""The backend as SGLang's controllers call it, over a real folder of values; and its parts:
settings, pages as buffers, and what a prefix needs of pools."""

import logging
import random
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hicache import clock
from hicache.core.errors import CallerError
from hicache.sglang.describing import form_of, settings_of, weights_of
from hicache.sglang.storing import HostPages, prefixes
from hicache.storage.address import StoreSettings, open_storage, parse
from hicache.storage.base import Status, StorageOptions
from hicache.storage.checksummed import HEADER_BYTES

from . import interface
from .interface import (
    AsymmetricPoolHost,
    Config,
    MambaPoolHost,
    MHATokenToKVPoolHost,
    MLATokenToKVPoolHost,
    PoolHitPolicy,
    PoolName,
    PoolTransfer,
)

KEYS = [sha256(bytes([at])).hexdigest() for at in range(6)]
Open = Callable[..., Any]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens a backend over the folder of the test. pool: its keys and values. config: what differs
    from the usual. extra: further settings."""
    module = interface.backend(monkeypatch)
    made = []

    def open_one(pool: Any = None, extra: Any = None, **config: Any) -> Any:
        settings = {"storage": f"file:{tmp_path / 'kv'}", "weights": "w"}
        settings |= {"interface_v1": 1, **(extra or {})}
        item = module.HicacheStorage(Config(extra_config=settings, **config), {})
        made.append(item)
        item.register_mem_pool_host(pool or MHATokenToKVPoolHost("page_first"))
        return item

    yield open_one
    for value in made:
        value.close()


def slots(*pages: int, size: int = 4) -> torch.Tensor:
    return torch.cat([torch.arange(page * size, (page + 1) * size) for page in pages])


def emptied(pool: Any) -> Any:
    pool.kv_buffer.zero_()
    return pool


@pytest.mark.parametrize("layout", ["layer_first", "page_first"])
def test_pages_come_back_after_a_restart_into_other_slots(opened: Open, layout: str) -> None:
    pool = MHATokenToKVPoolHost(layout)
    item = opened(pool)
    assert item.batch_exists(KEYS) == 0
    assert item.batch_set_v1(KEYS[:3], slots(1, 2, 3)) == [True] * 3
    assert item.batch_exists(KEYS) == 3
    item.close()
    again = emptied(MHATokenToKVPoolHost(layout))
    two = opened(again)
    assert two.batch_exists(KEYS) == 3
    assert two.batch_exists([KEYS[5], *KEYS]) == 0  # from the first page on
    assert two.batch_get_v1(KEYS[:4], slots(6, 5, 4, 0)) == [True] * 3 + [False]
    for wrong in (slots(0), None):  # of another number of pages
        assert two.batch_get_v1(KEYS[:3], wrong) == [False] * 3
    for before, after in ((1, 6), (2, 5), (3, 4)):
        assert torch.equal(pool.get_data_page(before * 4), again.get_data_page(after * 4))
    assert not again.get_data_page(4).any()


def test_a_batch_of_several_calls_ends_at_the_first_that_fails(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = MHATokenToKVPoolHost("page_first")
    item = opened(pool)
    page = item.pools["kv"].page_bytes
    monkeypatch.setattr("hicache.sglang.storing._MOST_BYTES", 2 * page)
    assert item.batch_set_v1(KEYS[:5], slots(0, 1, 2, 3, 4)) == [True] * 5
    item.store.delete(item.pools["kv"].keys(KEYS[2:3]))
    assert item.batch_get_v1(KEYS[:5], slots(5, 6, 7, 1, 2)) == [True, True, False, True, False]
    before = MHATokenToKVPoolHost("page_first")
    for slot, page in ((5, 0), (6, 1), (1, 3)):
        assert torch.equal(pool.get_data_page(4 * slot), before.get_data_page(4 * page))
    assert all(item.batch_set_v1(KEYS, slots(*range(6))))
    assert item.batch_exists(KEYS) == 6


DIFFERENT: dict[str, dict[str, Any]] = {
    "model": {"model_name": "other"},
    "weights": {"extra": {"weights": "v"}},
    "rank": {"tp_rank": 1, "tp_size": 2},
    "ranks": {"tp_size": 2},
    "stage": {"pp_rank": 1, "pp_size": 2},
    "dtype": {"pool": MHATokenToKVPoolHost("page_first", dtype=torch.float16)},
    "page size": {"pool": MHATokenToKVPoolHost("page_first", page_size=8)},
    "layout": {"pool": MHATokenToKVPoolHost("layer_first")},
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_another_cache_on_a_filled_store_never_hits(opened: Open, what: str) -> None:
    item = opened()
    assert all(item.batch_set_v1(KEYS, slots(*range(6))))
    other = opened(**DIFFERENT[what])
    size = other.mem_pool_host.page_size
    assert other.batch_exists(KEYS) == 0
    assert other.batch_get_v1(KEYS[:1], slots(0, size=size)) == [False]
    assert opened().batch_exists(KEYS) == 6


def test_mla_is_shared_by_ranks_and_states_are_not(opened: Open) -> None:
    def rank(number: int) -> Any:
        item = opened(
            MLATokenToKVPoolHost("page_first"), tp_rank=number, tp_size=2, is_mla_model=True
        )
        item.register_mem_host_pool_v2(MambaPoolHost(), PoolName.MAMBA)
        item.register_mem_host_pool_v2(MHATokenToKVPoolHost("page_first"), PoolName.DRAFT)
        return item

    first, second = rank(0), rank(1)
    assert all(first.batch_set_v1(KEYS[:2], slots(1, 2)))
    for name, at in ((PoolName.MAMBA, torch.tensor([1, 2])), (PoolName.DRAFT, slots(1, 2))):
        result = first.batch_set_v2([PoolTransfer(name, at, keys=KEYS[:2])])
        assert result == {name: [True, True]}
    assert second.batch_exists(KEYS) == 2
    for name in (PoolName.MAMBA, PoolName.DRAFT):
        requested = [PoolTransfer(name, keys=KEYS[:1], hit_policy=PoolHitPolicy.TRAILING_PAGES)]
        assert first.batch_exists_v2(KEYS, requested).kv_hit_pages == 2
        assert second.batch_exists_v2(KEYS, requested).kv_hit_pages == 0


def test_hits_of_several_pools(opened: Open) -> None:
    item = opened()
    states = MambaPoolHost()
    item.register_mem_host_pool_v2(states, PoolName.MAMBA)
    assert all(item.batch_set_v1(KEYS[:5], slots(*range(5))))
    stored = PoolTransfer(PoolName.MAMBA, torch.tensor([4, 5, 6]), keys=KEYS[1::2])
    assert item.batch_set_v2([stored]) == {PoolName.MAMBA: [True] * 3}
    last = PoolTransfer(PoolName.MAMBA, keys=KEYS[:1], hit_policy=PoolHitPolicy.TRAILING_PAGES)
    result = item.batch_exists_v2(KEYS, [last])
    assert result.kv_hit_pages == 4
    assert result.extra_pool_hit_pages == {"kv": 5, PoolName.MAMBA: 4}, "none is past the keys"
    assert result.restorable_prefix_pages == [2, 4]
    pool_transfer = PoolTransfer(PoolName.MAMBA, keys=KEYS)
    assert item.batch_exists_v2(KEYS, [pool_transfer]).kv_hit_pages == 0
    unknown = PoolTransfer(PoolName.MAMBA, keys=KEYS, hit_policy=PoolHitPolicy.BLOCK_GROUPS)
    assert item.batch_exists_v2(KEYS, [unknown]).kv_hit_pages == 0
    read = PoolTransfer(PoolName.MAMBA, torch.tensor([0]), keys=[KEYS[3]])
    assert item.batch_get_v2([read]) == {PoolName.MAMBA: [True]}
    assert torch.equal(states.temporal[0], states.temporal[5])
    nobody = PoolTransfer(PoolName.SWA, slots(0), keys=KEYS[:1])
    assert item.batch_get_v2([nobody]) == {PoolName.SWA: [False]}
    assert item.batch_exists_v2(KEYS, [nobody]).kv_hit_pages == 0


def test_a_flipped_bit_is_a_miss_and_the_page_is_stored_anew(
    opened: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pool = MHATokenToKVPoolHost("page_first")
    item = opened(pool)
    assert all(item.batch_set_v1(KEYS[:3], slots(1, 2, 3)))
    place = item.pools["kv"]
    store = open_storage(parse(f"file:{tmp_path / 'kv'}"), StorageOptions())
    value = bytearray(HEADER_BYTES + place.page_bytes)
    key = place.keys(KEYS[1:2])
    assert store.read(key, [(memoryview(value),)]) == [Status.DONE]
    value[-1] ^= 4
    assert store.write(key, [(memoryview(value),)]) == [Status.DONE]
    store.close()
    assert item.batch_get_v1(KEYS[:3], slots(4, 5, 6)) == [True, False, True]
    assert item.batch_exists(KEYS) == 1
    assert item.store.corrupt == 1
    assert all(item.batch_set_v1(KEYS[:3], slots(1, 2, 3)))
    assert item.batch_get_v1(KEYS[:3], slots(4, 5, 6)) == [True] * 3


def test_a_dead_store_is_asked_a_few_times_and_says_so_once(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    item = opened()
    requested = []

    def dead(keys: Any, *_: Any) -> list[None]:
        requested.append(keys)
        return [None] * len(keys)

    item.store.store.store.lookup = dead
    with caplog.at_level(logging.WARNING, "sglang.hicache"):
        for _ in range(100):
            assert item.batch_exists(KEYS) == 0
    assert len(requested) < 10
    assert sum("does not answer" in record.message for record in caplog.records) == 1
    assert item.batch_get_v1(KEYS[:2], slots(1, 2)) == [False, False]
    assert item.store.losses.outages == 1


def test_weights_of_another_version_stop_it(
    opened: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks, reads, writes = (opened() for _ in range(3))  # each call is the first of somebody
    assert all(writes.batch_set_v1(KEYS[:2], slots(1, 2)))
    context = interface.sys.modules["sglang.srt.runtime_context"]
    context.serving.weight_version = "trained again"  # type: ignore[attr-defined]
    for _ in range(3):
        assert looks.batch_exists(KEYS) == 0
        assert reads.batch_get_v1(KEYS[:2], slots(1, 2)) == [False, False]
        assert writes.batch_set_v1(KEYS[:1], slots(1)) == [False]
    assert sum("weights were updated" in record.message for record in caplog.records) == 3
    assert opened().batch_exists(KEYS) == 0  # attached again: keys of the new weights


def test_clear_deletes_what_is_its_own(opened: Open) -> None:
    item, other = opened(), opened(model_name="other")
    for each in (item, other):
        assert all(each.batch_set_v1(KEYS, slots(*range(6))))
    item.clear()
    assert item.batch_exists(KEYS) == 0
    assert other.batch_exists(KEYS) == 6
    assert all(item.batch_set_v1(KEYS, slots(*range(6))))


@pytest.mark.parametrize(
    ("config", "release", "text"),
    [
        ({"attn_cp_size": 2}, "0.5.23", "attn_cp_size: expected none with hicache, found 2"),
        ({"dcp_size": 2}, "0.5.23", "dcp_size: expected none"),
        ({"tp_lcm_size": 8}, "0.5.23", "tp_lcm_size: expected none"),
        ({}, "0.6.0", "expected a release of 0.5.22, 0.5.23, found 0.6.0"),
    ],
)
def test_what_it_cannot_carry_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: Any, release: str, text: str
) -> None:
    module = interface.backend(monkeypatch, release=release)
    settings = {"storage": f"file:{tmp_path}", "weights": "w", "interface_v1": 1}
    with pytest.raises(CallerError, match=text) as caught:
        module.HicacheStorage(Config(extra_config=settings, **config))
    assert "\n" not in str(caught.value)


class Saver:
    """What releases SGLang's memory, by its tag."""

    enabled = True

    def pause(self, tag: str) -> None: ...


class Runner:
    """SGLang's model runner, and what it updates weights with."""

    def __init__(self) -> None:
        self.weight_updater = self.model = self
        self.memory_saver_adapter = type("Own", (Saver,), {})()

    def release(self, tag: str = "weights") -> None:
        self.memory_saver_adapter.pause(tag)

    def load_weights(self) -> None: ...

    def modules(self) -> list[Any]:
        return [self]

    def update_weights_from_disk(self, path: str) -> None: ...


class Scheduler:
    """SGLang's scheduler, which makes the backend when it starts, or later."""

    def __init__(self, make: Callable[[], Any], *, attached: bool) -> None:
        self.tp_worker = SimpleNamespace(model_runner=type("Own", (Runner,), {})())
        self.make = make
        self.storage = make() if attached else None

    def attach(self) -> Any:
        return self.make()


def test_the_arguments_of_a_server_count_as_they_were_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"w")
    there = []
    for dtype in ("half", "half", "bfloat16"):
        arguments = {"model_path": str(tmp_path), "load_format": "auto", "dtype": dtype}
        module = interface.backend(monkeypatch, arguments)
        item = module.HicacheStorage(
            Config(extra_config={"storage": f"file:{tmp_path / 'kv'}", "interface_v1": 1})
        )
        item.register_mem_pool_host(MHATokenToKVPoolHost("page_first"))
        there.append(item.batch_exists(KEYS[:1]))
        item.batch_set_v1(KEYS[:1], torch.arange(4))
        item.close()
    assert there == [0, 1, 0]


@pytest.mark.parametrize("update", ["update_weights_from_disk", "load_weights", "release"])
def test_an_update_stops_it_until_the_weights_have_a_name(
    update: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"w")
    arguments = {"model_path": str(model), "load_format": "auto"}
    module = interface.backend(monkeypatch, arguments)
    extra: dict[str, Any] = {"storage": f"file:{tmp_path / 'kv'}", "interface_v1": 1}

    def make() -> Any:
        item = module.HicacheStorage(Config(extra_config=extra))
        item.register_mem_pool_host(MHATokenToKVPoolHost("page_first"))
        return item

    scheduler = Scheduler(make, attached=True)
    assert scheduler.storage.batch_set_v1(KEYS[:1], torch.arange(4)) == [True]
    scheduler.attach().close()
    runner = scheduler.tp_worker.model_runner
    runner.release("kv_cache")
    assert scheduler.storage.batch_exists(KEYS[:1]) == 1
    getattr(runner, update)(*["path"] * (update == "update_weights_from_disk"))
    for _ in range(2):
        assert scheduler.storage.batch_exists(KEYS[:1]) == 0
    assert scheduler.storage.batch_set_v1(KEYS[1:2], torch.arange(4)) == [False]
    [line] = [message for message in caplog.messages if "weights" in message]
    assert line.endswith('attached again with a name for them ("weights")')
    scheduler.storage.close()
    for late in (scheduler, Scheduler(make, attached=False)):
        with pytest.raises(CallerError, match="weights: expected a name for them where storage is"):
            late.attach()
    extra["weights"] = "step 12"
    again = scheduler.attach()
    assert again.batch_exists(KEYS[:1]) == 0
    assert again.batch_set_v1(KEYS[:1], torch.arange(4)) == [True]
    again.close()


def test_an_adapter_is_what_its_files_were_when_the_server_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    weights = tmp_path / "adapter_model.safetensors"
    weights.write_bytes(b"1")
    module = interface.backend(monkeypatch, {"lora_paths": [f"a={tmp_path}"]})
    settings = {"storage": f"file:{tmp_path / 'kv'}", "weights": "w", "interface_v1": 1}

    def keys() -> list[str]:
        item = module.HicacheStorage(Config(extra_config=settings))
        item.register_mem_pool_host(MHATokenToKVPoolHost("page_first"))
        item.close()
        return item.pools["kv"].keys(KEYS[:1])

    scheduler = Scheduler(keys, attached=True)
    weights.write_bytes(b"2")
    assert scheduler.attach() == scheduler.storage
    assert Scheduler(keys, attached=True).storage != scheduler.storage
    monkeypatch.setattr(clock, "started_s", lambda: 1.0)
    assert scheduler.attach() == scheduler.storage
    with pytest.raises(CallerError, match=r"was written since; start again$"):
        Scheduler(keys, attached=True)


def test_the_package_does_not_need_sglang_before_its_class_is_asked_for() -> None:
    package = __import__("hicache.sglang", fromlist=["settings"])
    assert package.__all__ == ["HicacheStorage"]
    with pytest.raises(AttributeError):
        _ = package.Nothing


def test_settings_are_read_and_sglangs_own_are_left_to_it() -> None:
    values = {"module_path": "hicache.sglang", "interface_v1": 1, "storage": "file:/data/kv"}
    assert settings_of(values) == StoreSettings(storage="file:/data/kv")
    settings = settings_of(values | {"weights": "w1", "timeout_s": 20})
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
        settings_of({"interface_v1": 1} | values)
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
