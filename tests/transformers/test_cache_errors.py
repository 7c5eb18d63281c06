"""What `PrefixCache` refuses, in one line, and what a call that fails leaves behind."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the extra transformers", exc_type=ImportError)

import torch
import transformers
from transformers import (
    BertConfig,
    DynamicCache,
    MiniMaxConfig,
    RecurrentGemmaConfig,
    StaticCache,
    T5Config,
    XLNetConfig,
)

from hicache.core.errors import CallerError, Detached
from hicache.transformers import (
    ClosedError,
    PrefixCache,
    UnsupportedArgumentError,
    UnsupportedModelError,
)
from hicache.transformers.layers import KINDS
from invariants import production
from invariants.production import replay

from ..invariants.test_production import plant
from . import building as base
from .building import Streamer
from .test_cache import SIZES, both, noted, prompt


@pytest.fixture
def cache() -> Iterator[PrefixCache]:
    with PrefixCache(base.build("llama"), **SIZES) as made:
        yield made


_STATIC = StaticCache(config=base.configuration("llama"), max_cache_len=20)


@contextmanager
def refused(kind: type[CallerError], *words: str) -> Iterator[None]:
    with pytest.raises(kind) as caught:
        yield
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700
    assert "expected" in str(caught.value) or "called from inside" in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (("batch of 1", "(2, 4)"), {"input_ids": prompt(8).reshape(2, 4)}),
        (("token ids", "(8,)"), {"input_ids": prompt(8)[0]}),
        (("token ids", "list"), {"input_ids": [1, 2]}),
        (("at least one",), {"input_ids": prompt(8)[:, :0]}),
        (("num_beams", "found 3"), {"num_beams": 3}),
        (("num_return_sequences",), {"num_return_sequences": 2, "do_sample": True}),
        (("use_cache", "False"), {"use_cache": False}),
        (("cache_implementation", "static"), {"cache_implementation": "static"}),
        (("past_key_values", "DynamicCache"), {"past_key_values": DynamicCache()}),
        (("past_key_values", "StaticCache"), {"past_key_values": _STATIC}),
        (("attention_mask", "padding"), {"attention_mask": torch.tensor([[0] + [1] * 7])}),
        (("pad token (9)",), {"input_ids": torch.tensor([[9, 9, 30]]), "pad_token_id": 9}),
        (("inputs_embeds",), {"inputs_embeds": torch.zeros(1, 8, 64)}),
        (("position_ids",), {"position_ids": torch.arange(8)[None] + 5}),
        (("is_causal", "bool"), {"is_causal": False}),
        (("cu_seq_lens_q", "tensor"), {"cu_seq_lens_q": torch.tensor([0, 4, 8])}),
        (("two",), {"inputs": prompt(8)}),
    ],
)
def test_arguments_that_a_cache_cannot_serve(
    cache: PrefixCache, words: tuple[str, ...], arguments: dict[str, Any]
) -> None:
    value = {"input_ids": prompt(8), "max_new_tokens": 2} | arguments
    with refused(UnsupportedArgumentError, *words):
        cache.generate(**value)
    assert cache.stats.requests == 0


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"device_tokens": 15}, ("device_tokens", "at least 16", "found 15")),
        ({"page_size": 0}, ("page_size", "found 0")),
        ({"host_tokens": -1}, ("host_tokens", "found -1")),
        ({"host_tokens": 7, "storage": "file:kv"}, ("host_tokens", "storage is filled")),
        ({"interval_tokens": 0}, ("interval_tokens",)),
        ({"device_tokens": 10**30}, ("device_tokens", "at most")),
        ({"host_tokens": 1 << 40}, ("memory", "available")),
        ({"page_size": True}, ("page_size", "found True")),
        ({"check": "often"}, ("check: expected sampled, found 'often'",)),
        ({"check": "sampled", "check_dir": "none"}, ("check_dir: expected a folder",)),
        ({"wait_s": float("nan")}, ("wait_s", "found nan")),
        ({"timeout_s": 0}, ("timeout_s", "more than 0", "found 0")),
        ({"storage": "file:"}, ("storage", "file:DIR")),
        ({"storage": torch.zeros(40, 40)}, ("storage",)),
        ({"device_tokens": "x" * 10_000 + "\n"}, ("device_tokens",)),
        ({"interval_tokens": 10**5000}, ("interval_tokens",)),
        ({"wait_s": SimpleNamespace(text="\n")}, ("wait_s",)),
    ],
)
def test_options_that_cannot_be_used(
    sizes: dict[str, Any], words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with refused(CallerError, *words):
        PrefixCache(base.build("llama"), **SIZES | sizes)
    assert not Path("kv").exists()


def test_models_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = {"d_model": 8, "d_kv": 4, "num_layers": 1, "num_heads": 1, "d_ff": 8, "vocab_size": 9}
    with refused(UnsupportedModelError, "encoder-decoder"):
        PrefixCache(transformers.T5ForConditionalGeneration(T5Config(**shape)).eval())
    with refused(UnsupportedModelError, "str"):
        PrefixCache("llama")
    with refused(UnsupportedModelError, "model.eval()"):
        PrefixCache(base.build("llama").train())
    offloaded = base.build("llama")
    offloaded.lm_head.to("meta")
    with refused(UnsupportedModelError, "meta", "load the whole model"):
        PrefixCache(offloaded)
    monkeypatch.delitem(KINDS, "DynamicLayer")
    with refused(UnsupportedModelError, "DynamicLayer", "hicache/transformers/layers.py"):
        PrefixCache(base.build("llama"))


_WITHOUT = """
import sys
sys.modules["transformers"] = None
try:
    from hicache.transformers import PrefixCache
except ImportError as error:
    print(error)
from hicache.transformers import NotInstalledError
"""


_SMALL = {"vocab_size": 97, "hidden_size": 32, "num_attention_heads": 4, "initializer_range": 0.2}
_SMALL |= {"intermediate_size": 64, "num_key_value_heads": 2}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (BertConfig(num_hidden_layers=2, is_decoder=False), ("in two parts", "later ones")),
        (
            RecurrentGemmaConfig(num_hidden_layers=3, lru_width=32, attention_window_size=12),
            ("in two parts",),
        ),
        (XLNetConfig(n_layer=2, n_head=4, d_model=32), ("DynamicLayer", "found none")),
        (MiniMaxConfig(num_hidden_layers=2), ("DynamicCache", "ValueError")),
    ],
    ids=lambda item: getattr(item, "model_type", ""),
)
def test_models_that_keep_more_or_less_than_their_cache_are_refused(
    config: Any, words: tuple[str, ...]
) -> None:
    for name, value in _SMALL.items():
        setattr(config, name, value)
    with refused(UnsupportedModelError, *words):
        PrefixCache(base.built(config), **SIZES)


def test_a_window_without_room_is_refused() -> None:
    model = base.build("gemma3")  # a window of 12
    PrefixCache(model, **SIZES | {"device_tokens": 24}).close()
    with refused(CallerError, "device_tokens: expected at least 24", "window of 12", "found 23"):
        PrefixCache(model, **SIZES | {"device_tokens": 23})


def test_without_the_library_the_error_names_the_extra() -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    assert "pip install 'hicache[transformers]'" in done.stdout


@pytest.mark.parametrize("name", ["llama", "qwen3-next"])
@pytest.mark.parametrize("calls", [1, 2])
def test_a_call_that_is_cut_off_leaves_the_cache_usable(name: str, calls: int) -> None:
    """What the prompt needed is kept, if it was computed: the first call of a streamer has the
    prompt, before the first pass."""

    def cut_off(call: int) -> None:
        if call == calls:
            raise KeyboardInterrupt

    model = base.build(name)
    with PrefixCache(model, **SIZES) as cache:
        with pytest.raises(KeyboardInterrupt):
            cache.generate(prompt(60), max_new_tokens=9, streamer=Streamer(cut_off))
        both(model, cache, prompt(60))
        assert cache.stats.saved_tokens == (0 if calls == 1 else 48 if name == "qwen3-next" else 56)
        assert not cache._engine.driver.core.view.requests


def test_a_pass_that_raises_in_the_middle_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, broken = base.build("llama"), []

    def fail(*_: Any) -> None:
        if broken:
            raise ZeroDivisionError

    noted(monkeypatch, model.model.layers[-1], fail)
    with PrefixCache(model, **SIZES) as cache:
        broken.append(True)
        with pytest.raises(ZeroDivisionError):
            cache.generate(prompt(60), max_new_tokens=2)
        broken.clear()
        both(cache.model, cache, prompt(60))
        assert cache.stats.saved_tokens == 0


@pytest.mark.parametrize("call", ["match", "close"])
def test_calls_from_inside_a_call_are_refused(cache: PrefixCache, call: str) -> None:
    calls = {"match": lambda _: cache.match(prompt(60)), "close": lambda _: cache.close()}
    with refused(ClosedError, "from inside"):
        cache.generate(prompt(60), max_new_tokens=3, streamer=Streamer(calls[call]))
    both(cache.model, cache, prompt(60))


@pytest.mark.parametrize("bug", ["order", "crash"])
def test_after_a_failed_check_the_model_computes_everything(
    bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(production, "SHARE", 1e9)
    model, (store, folder) = base.build("llama"), (tmp_path / "kv", tmp_path / "events")
    folder.mkdir()
    sizes = SIZES | {"device_tokens": 128, "host_tokens": 256, "storage": f"file:{store}"}
    cache = PrefixCache(model, **sizes, check="sampled", check_dir=str(folder))
    for seed in (1, 2, 1):
        both(model, cache, prompt(70, seed), max_new_tokens=3)
    assert cache.flush()
    assert not caplog.records
    plant(monkeypatch, bug)
    for seed in (3, 4, 5, 6, 7, 8, 7, 8):
        both(model, cache, prompt(70, seed), max_new_tokens=3)
    [record] = caplog.records
    assert record.message.startswith("hicache: a check has failed, the cache is not used any more")
    [path] = folder.iterdir()
    assert f"\n{replay('file', path.read_text())[1]}\nstory:" in record.message
    assert cache.match(prompt(70, 8)) == 0
    cache.clear()
    with pytest.raises(Detached, match="since a check has failed: see the log"):
        cache.clear(storage=True)
    assert not cache.flush()
    assert not cache.close()
    assert cache._engine._attachment.store is None, "the store is left open"
    assert len(caplog.records) == 1
