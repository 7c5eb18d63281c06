"""`PrefixCache.generate` gives the tokens of `model.generate`, wherever the prefix is."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the extra transformers", exc_type=ImportError)

import torch
from transformers import (
    CompileConfig,
    LogitsProcessorList,
    MinLengthLogitsProcessor,
    Phi3Config,
    StoppingCriteriaList,
)

from hicache.devices._accelerator import unusable
from hicache.transformers import PrefixCache
from hicache.transformers.describing import DTYPES
from hicache.transformers.engine import Engine
from hicache.transformers.live import LiveCache
from invariants.watch import Watch
from tests.patience import PATIENCE_S

from . import building as base
from .emptying import Streamer, empty_device, empty_memory

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"device_tokens": 512, "host_tokens": 1024, "page_size": 8, "interval_tokens": 16}


def prompt(tokens: int, seed: int = 3) -> torch.Tensor:
    return torch.randint(5, base.VOCABULARY, (1, tokens), generator=torch.manual_seed(seed))


@pytest.fixture(params=["cpu", "cuda"])
def place(request: pytest.FixtureRequest) -> str:
    """Where the model is."""
    found: str = request.param
    if found == "cuda" and (missing := unusable()):
        pytest.skip(missing)
    return found


def both(model: Any, cache: PrefixCache, ids: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    """What the cache generates, which must be what the model does."""
    kwargs = {"max_new_tokens": 9, "do_sample": False, "attention_mask": ids * 0 + 1} | kwargs
    wanted = model.generate(ids, **kwargs)
    found = cache.generate(ids, **kwargs)
    assert torch.equal(found, wanted)
    return found


def noted(
    monkeypatch: pytest.MonkeyPatch, module: Any, note: Callable[[tuple[Any, ...], Any], None]
) -> None:
    """Tell `note` what a module is given and returns. A hook that keeps it would be a part of the
    model, which then is another one after each pass."""
    forward = type(module).forward

    @wraps(forward)
    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = forward(self, *args, **kwargs)
        if self is module:
            note(args, out)
        return out

    monkeypatch.setattr(type(module), "forward", told)


@pytest.mark.one_in(32)
@pytest.mark.parametrize("name", base.names())
def test_every_family_hits_on_every_tier(name: str, place: str, tmp_path: Path) -> None:
    model, *drafts = (one.to(place) for one in base.build_all(name))
    given = {"storage": f"file:{tmp_path}", "draft": drafts[0] if drafts else None, **SIZES}
    ids = prompt(60).to(place)
    with PrefixCache(model, **given) as cache:
        answer = both(model, cache, ids)
        assert cache.stats.saved_tokens == 0
        longer = torch.cat([answer, prompt(20, 4).to(place)], dim=1)
        states = "mamba" in cache._engine.described.components
        deep = 80 if states else 88  # of 89 tokens, in whole intervals or pages
        both(model, cache, longer)
        assert cache.stats.hits == {"device": 64, "host": 0, "disk": 0}
        empty_device(cache)
        both(model, cache, longer)
        assert cache.stats.hits == {"device": 64, "host": deep, "disk": 0}
        empty_memory(cache)
        both(model, cache, longer)
        assert cache.stats.hits == {"device": 64, "host": deep, "disk": deep}
    with PrefixCache(model, **given) as cache:
        assert cache.match(longer) == deep
        both(model, cache, longer)
        assert cache.stats.as_dict()["saved_tokens"] == deep
        assert cache.stats.uncached == 0


@pytest.mark.one_in(64)
@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen3-next"])
def test_every_invariant_holds_while_small_pools_evict(name: str, place: str) -> None:
    model, watch = base.build(name).to(place), Watch("every")
    sizes = SIZES | {"device_tokens": 128, "host_tokens": 256}
    with PrefixCache(model, **sizes) as cache:
        cache._ongoing.driver.observers += (watch,)
        for seed in (1, 2, 3, 4, 1, 2, 4, 4):
            both(model, cache, prompt(70 + seed, seed).to(place), max_new_tokens=5)
        cache.flush()
        watch.finish(cache._ongoing.driver.core.view)
        assert not watch.violations
        assert cache.stats.hits["device"] > 0
        assert cache.stats.hits["host"] > 0


@pytest.mark.one_in(32)
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_other_types_and_attentions(dtype: str, attention: str, place: str) -> None:
    model = base.build("llama", dtype=DTYPES[dtype], attention=attention).to(place)
    ids = prompt(60).to(place)
    with PrefixCache(model, **SIZES) as cache:
        first = cache.generate(ids, max_new_tokens=5, do_sample=False)
        assert torch.equal(cache.generate(ids, max_new_tokens=5, do_sample=False), first)
        assert cache.stats.saved_tokens == 56


@pytest.mark.one_in(64)
def test_generate_takes_what_the_models_own_takes() -> None:
    model, ids = base.build("llama"), prompt(50)
    with PrefixCache(model, **SIZES) as cache:
        answer = both(model, cache, ids)
        both(model, cache, ids, eos_token_id=answer[0, 53].item())
        both(model, cache, ids, eos_token_id=[answer[0, 52].item(), 5], pad_token_id=0)
        both(model, cache, ids, repetition_penalty=1.3, no_repeat_ngram_size=2)
        both(model, cache, ids, prefill_chunk_size=7)
        both(model, cache, ids, max_new_tokens=1)
        both(model, cache, prompt(1), max_new_tokens=12)
        criteria = StoppingCriteriaList([lambda found, _: torch.tensor([found.shape[1] >= 55])])
        assert both(model, cache, ids, stopping_criteria=criteria).shape[1] == 55
        eos = answer[0, 51].item()
        processors = LogitsProcessorList([MinLengthLogitsProcessor(56, eos)])
        both(model, cache, ids, logits_processor=processors, eos_token_id=eos)
        for temperature in (0.7, 1.5):
            drawn = []
            for one in (model, cache):
                torch.manual_seed(5)
                drawn.append(
                    one.generate(
                        input_ids=ids, do_sample=True, temperature=temperature, max_new_tokens=9
                    )
                )
            assert torch.equal(*drawn)
        streamer = Streamer()
        both(model, cache, ids)
        found = cache.generate(ids, max_new_tokens=4, do_sample=False, streamer=streamer)
        assert [token for one in streamer.given for token in one] == found[0].tolist()
        assert streamer.ended


def test_no_model_is_compiled_for_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """On CUDA the library would, for a model of states alone; here it may on the CPU, too."""

    def compiled(*_: Any) -> None:
        raise AssertionError("the library compiles the model")

    model = base.build("mamba2")
    model.generation_config.compile_config = CompileConfig()
    model.generation_config.compile_config._compile_all_devices = True
    monkeypatch.setattr(type(model), "get_compiled_call", compiled)
    with PrefixCache(model, **SIZES) as cache:
        both(model, cache, prompt(60))
        both(model, cache, prompt(60))
        assert cache.stats.hits["device"] == 48


def test_records_of_a_generation_are_those_of_the_model() -> None:
    model, ids = base.build("llama"), prompt(50)
    asked = {"max_new_tokens": 4, "do_sample": False, "return_dict_in_generate": True}
    asked |= {"output_logits": True, "output_scores": True}
    with PrefixCache(model, **SIZES) as cache:
        wanted = model.generate(ids, **asked)
        for _ in range(2):
            found = cache.generate(ids, **asked)
            assert torch.equal(found.sequences, wanted.sequences)
            assert len(found.scores) == 4
            for one, other in zip(found.logits, wanted.logits, strict=True):
                assert torch.allclose(one, other, atol=1e-4)


@pytest.mark.one_in(32)
@pytest.mark.parametrize("with_draft", [True, False])
def test_assisted_generation(with_draft: bool) -> None:
    model, draft = base.build_all("draft")
    with PrefixCache(model, draft=draft if with_draft else None, **SIZES) as cache:
        ids = prompt(50)
        for tokens in (20, 1, 20):
            asked = {"max_new_tokens": tokens, "do_sample": False}
            wanted = model.generate(ids, **asked)
            assert torch.equal(cache.generate(ids, assistant_model=draft, **asked), wanted)
            ids = wanted
        assert cache.stats.hits["device"] == 64 + 64


@pytest.mark.one_in(16)
def test_a_hit_runs_few_tokens_through_both_models(monkeypatch: pytest.MonkeyPatch) -> None:
    model, draft = base.build_all("draft")
    seen: dict[str, list[int]] = {"model": [], "draft": []}
    for name, one in (("model", model), ("draft", draft)):
        embeddings = one.model.embed_tokens
        noted(
            monkeypatch, embeddings, lambda args, _, name=name: seen[name].append(args[0].shape[1])
        )
    with PrefixCache(model, draft=draft, **SIZES) as cache:
        ids = prompt(50)
        cache.generate(ids, max_new_tokens=8, do_sample=False)
        assert max(seen["model"]) >= 50
        assert max(seen["draft"]) >= 50
        for counts in seen.values():
            counts.clear()
        cache.generate(ids, max_new_tokens=8, do_sample=False)
        assert max(seen["model"]) < 25
        assert max(seen["draft"]) < 25


@pytest.mark.one_in(16)
def test_a_pass_waits_for_each_layer_of_both_models(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    arrive = Engine._arrive

    def noted(self: Engine, flights: Iterable[int], layer: int) -> None:
        waited.append(layer)
        arrive(self, flights, layer)

    monkeypatch.setattr(Engine, "_arrive", noted)
    model, draft = base.build_all("draft")
    with PrefixCache(model, draft=draft, **SIZES) as cache:
        both(model, cache, prompt(60))
        empty_device(cache)
        assert not waited
        both(model, cache, prompt(60))
        layers = [layer.number for one in cache._engine.described.caches for layer in one.layers]
        assert sorted(waited) == sorted(layers) == [0, 1, 2, 3]


@pytest.mark.one_in(16)
def test_only_computed_prompt_tokens_tell_what_a_token_costs() -> None:
    model = base.build("llama")
    with PrefixCache(model, **SIZES) as cache:
        both(model, cache, prompt(60))
        assert cache.stats.timed_tokens == 60
        both(model, cache, torch.cat([prompt(60), prompt(40, 4)], dim=1))
        assert (cache.stats.timed_tokens, cache.stats.saved_tokens) == (60 + 44, 56)


@pytest.mark.one_in(8)
def test_rows_of_a_draft_are_those_of_the_accepted_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The draft has computed tokens that the model refused. Its candidates after a hit are those
    that it has without a cache."""
    model, draft = base.build_all("draft")
    draft.generation_config.assistant_confidence_threshold = 0.0  # or it gives up at once
    drafted: list[torch.Tensor] = []
    noted(monkeypatch, draft, lambda _, out: drafted.append(out.logits[0, -1].detach()))
    with PrefixCache(model, draft=draft, **SIZES) as cache:
        for tokens in range(1, 17):
            draft.generation_config.num_assistant_tokens = 1 + tokens % 5
            ids = cache.generate(prompt(50, tokens), max_new_tokens=tokens, do_sample=False)
            drafted.clear()
            model.generate(ids, max_new_tokens=3, do_sample=False, assistant_model=draft)
            cold = list(drafted)
            drafted.clear()
            cache.generate(ids, max_new_tokens=3, do_sample=False)
            assert len(drafted) >= len(cold)
            for one, other in zip(cold, drafted, strict=False):
                assert torch.allclose(one, other, atol=1e-4)


@pytest.mark.one_in(16)
def test_a_prompt_longer_than_the_device_is_cached_in_part() -> None:
    model, sizes = base.build("llama"), SIZES | {"device_tokens": 64}
    with PrefixCache(model, **sizes) as cache:
        for hits in (0, 56, 112):
            both(model, cache, prompt(200))
            assert cache.stats.saved_tokens == hits
        cache.clear()
        both(model, cache, prompt(90))
        assert cache.stats.saved_tokens == 112


def test_what_is_kept_of_a_joint_projection_are_keys_and_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = Phi3Config(hidden_size=64, intermediate_size=64, num_hidden_layers=2, vocab_size=97)
    config.num_attention_heads, config.num_key_value_heads = 8, 1
    config.pad_token_id = config.eos_token_id = None
    kept: list[int] = []

    def look(live: LiveCache, ids: torch.Tensor) -> None:
        end(live, ids)
        for seen in live.seen:
            tensors = (*seen.keys, *seen.values)
            kept.append(sum(one.untyped_storage().nbytes() for one in tensors))

    end = LiveCache.end
    monkeypatch.setattr(LiveCache, "end", look)
    with PrefixCache(base.built(config), **SIZES) as cache:
        cache.generate(prompt(60), max_new_tokens=1)
    assert kept == [60 * 2 * 8 * 4] * 2  # tokens, keys and values, elements of a head, fp32


@pytest.mark.one_in(16)
def test_a_cache_that_was_made_in_inference_mode_works_outside() -> None:
    with torch.inference_mode():
        cache = PrefixCache(base.build("llama"), **SIZES)
    with cache:
        both(cache.model, cache, prompt(60))
        with torch.inference_mode():
            both(cache.model, cache, prompt(60))
        assert cache.stats.saved_tokens == 56


@pytest.mark.one_in(8)
def test_passes_up_to_a_state_compute_the_logits_of_one_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = base.build("qwen3-next")
    counts: list[int] = []
    noted(monkeypatch, model.lm_head, lambda args, _: counts.append(args[0].shape[1]))
    with PrefixCache(model, **SIZES) as cache:
        counts.clear()
        cache.generate(prompt(60), max_new_tokens=2)
    assert set(counts) == {1}


@pytest.mark.one_in(64)
@pytest.mark.parametrize(("name", "hits"), [("llama", 56), ("gemma3", 56), ("qwen3-next", 48)])
def test_a_prompt_of_whole_pages_hits_when_it_comes_again(name: str, hits: int) -> None:
    """Of such a prompt the last page is not reused, since its last token must be computed. So the
    window or state that counts is the one before that page."""
    model = base.build(name)
    with PrefixCache(model, **SIZES | {"host_tokens": 0}) as cache:
        both(model, cache, prompt(64))
        both(model, cache, prompt(64))
        assert cache.stats.hits == {"device": hits, "host": 0, "disk": 0}


_KILLED = """
import sys, time, torch
from hicache.transformers import PrefixCache
from tests.transformers import building as base
from tests.transformers.test_cache import SIZES, prompt
cache = PrefixCache(base.build("llama"), storage=sys.argv[1], **SIZES)
print(cache.match(prompt(60)), flush=True)
cache.generate(prompt(60), max_new_tokens=2, do_sample=False)
print("generated", flush=True)
time.sleep(600)
"""


@pytest.mark.one_in(8)
def test_a_process_that_is_killed_leaves_what_it_stored(tmp_path: Path) -> None:
    """The program calls nothing but `generate`; what it computed reaches the disk on its own."""
    store = f"file:{tmp_path}/kv"
    known = os.environ.get("PYTHONPATH", "")  # where the library may be
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), known])}
    command = [sys.executable, "-c", _KILLED, store]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        assert [child.stdout.readline() for _ in range(2)] == ["0\n", "generated\n"]
        with PrefixCache(base.build("llama"), storage=store, **SIZES) as cache:
            for _ in range(int(PATIENCE_S / 0.01)):
                if cache.match(prompt(60)) == 56:
                    break
                cache._ongoing.clock.sleep(0.01)
        child.send_signal(signal.SIGKILL)
    with PrefixCache(base.build("llama"), storage=store, **SIZES) as cache:
        assert cache.match(prompt(60)) == 56
        both(cache.model, cache, prompt(60))
        assert cache.stats.hits["host"] == 56  # `match` has brought it there


@pytest.mark.one_in(16)
def test_the_example_in_the_docs_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/transformers.md").read_text()
    [example] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(example, "docs/transformers.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "304 tokens of this longer prompt would not be computed"
    assert lines[3].split()[:3] == ["hits,", "device", "304"]
