"""`PrefixCache.generate` gives the tokens of `model.generate`, wherever the prefix is."""

import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the extra transformers", exc_type=ImportError)

import torch
from transformers import LogitsProcessorList, MinLengthLogitsProcessor, StoppingCriteriaList

from hicache.transformers import PrefixCache
from invariants.checker import Checker

from . import building as base
from .building import Streamer

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"device_tokens": 512, "host_tokens": 1024, "page_size": 8, "interval_tokens": 16}


def prompt(tokens: int, seed: int = 3) -> torch.Tensor:
    return torch.randint(5, base.VOCABULARY, (1, tokens), generator=torch.manual_seed(seed))


def both(model: Any, cache: PrefixCache, ids: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    """What the cache generates, which must be what the model does."""
    kwargs = {"max_new_tokens": 9, "do_sample": False, "attention_mask": ids * 0 + 1} | kwargs
    wanted = model.generate(ids, **kwargs)
    result = cache.generate(ids, **kwargs)
    assert torch.equal(result, wanted)
    return result


def noted(
    monkeypatch: pytest.MonkeyPatch, module: Any, note: Callable[[tuple[Any, ...], Any], None]
) -> None:
    """Tell `note` what a module is given and returns. A hook that keeps it would be a part of the
    model, which then is another one after each pass."""
    forward = type(module).forward

    @wraps(forward)
    def report_of(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = forward(self, *args, **kwargs)
        if self is module:
            note(args, out)
        return out

    monkeypatch.setattr(type(module), "forward", report_of)


@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen3-next"])
def test_every_invariant_holds_while_small_pools_evict(name: str, place: str) -> None:
    model, checker = base.build(name).to(place), Checker("every")
    sizes = SIZES | {"device_tokens": 128, "host_tokens": 256}
    with PrefixCache(model, **sizes) as cache:
        cache._engine.driver.observers += (checker,)
        for seed in (1, 2, 3, 4, 1, 2, 4, 4):
            both(model, cache, prompt(70 + seed, seed).to(place), max_new_tokens=5)
        cache.flush()
        checker.finish(cache._engine.driver.core.view)
        assert not checker.violations
        assert cache.stats.hits["device"] > 0
        assert cache.stats.hits["host"] > 0


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
        criteria = StoppingCriteriaList([lambda result, _: torch.tensor([result.shape[1] >= 55])])
        assert both(model, cache, ids, stopping_criteria=criteria).shape[1] == 55
        eos = answer[0, 51].item()
        processors = LogitsProcessorList([MinLengthLogitsProcessor(56, eos)])
        both(model, cache, ids, logits_processor=processors, eos_token_id=eos)
        for temperature in (0.7, 1.5):
            drawn, requested = [], {"do_sample": True, "temperature": temperature}
            for item in (model, cache):
                torch.manual_seed(5)
                drawn.append(item.generate(input_ids=ids, max_new_tokens=9, **requested))
            assert torch.equal(*drawn)
        streamer = Streamer()
        results = cache.generate(ids, max_new_tokens=4, do_sample=False, streamer=streamer)
        assert [token for item in streamer.received for token in item] == results[0].tolist()
        assert streamer.ended


def test_a_prompt_longer_than_the_device_is_cached_in_part() -> None:
    model, sizes = base.build("llama"), SIZES | {"device_tokens": 64}
    with PrefixCache(model, **sizes) as cache:
        for hits in (0, 56, 112):
            both(model, cache, prompt(200))
            assert cache.stats.saved_tokens == hits
        cache.clear()
        both(model, cache, prompt(90))
        assert cache.stats.saved_tokens == 112


@pytest.mark.parametrize(("name", "hits"), [("llama", 56), ("gemma3", 56), ("qwen3-next", 48)])
def test_a_prompt_of_whole_pages_hits_when_it_comes_again(name: str, hits: int) -> None:
    """Of such a prompt the last page is not reused, since its last token must be computed. So the
    window or state that counts is the one before that page."""
    model = base.build(name)
    with PrefixCache(model, **SIZES | {"host_tokens": 0}) as cache:
        both(model, cache, prompt(64))
        both(model, cache, prompt(64))
        assert cache.stats.hits == {"device": hits, "host": 0, "disk": 0}


def test_the_example_in_the_docs_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/transformers.md").read_text()
    [example] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(example, "docs/transformers.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "304 tokens of this longer prompt would not be computed"
    assert ["hits,", "device", "304"] in [line.split() for line in lines]
