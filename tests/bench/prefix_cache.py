"""Time to first token of a prompt that was seen before, for docs/transformers.md.

A llama with random weights, in turns in one process: the model's own `generate`, and that of a
`PrefixCache` without a hit and with one on device, on host and on disk. A share is the median of
the rounds' own. Run it:

    python -m tests.bench.prefix_cache [--tokens 4096] [--new 16] [--rounds 5] [--threads 2]
    python -m tests.bench.prefix_cache --place cuda --model llama-3.1-8b --check-weights versions
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from hicache.transformers import PrefixCache
from tests.transformers.emptying import empty_device, empty_memory

# fp32 with 100 M parameters, and bf16 with 8 B
MODELS: dict[str, tuple[torch.dtype, dict[str, Any]]] = {
    "small": (
        torch.float32,
        {
            "hidden_size": 768,
            "intermediate_size": 2048,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "num_key_value_heads": 4,
            "tie_word_embeddings": True,
        },
    ),
    "llama-3.1-8b": (
        torch.bfloat16,
        {
            "vocab_size": 128256,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
        },
    ),
}


class Stopwatch:
    """A streamer that notes when the first token came."""

    def __init__(self) -> None:
        self.puts = 0
        self.began_s = time.perf_counter()
        self.first_s = 0.0

    def put(self, _: Any) -> None:
        self.puts += 1
        if self.puts == 2:  # the first is the prompt
            self.first_s = time.perf_counter() - self.began_s

    def end(self) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("tokens", 4096), ("new", 16), ("rounds", 5), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--place", default="cpu")
    parser.add_argument("--model", choices=MODELS, default="small")
    parser.add_argument("--check-weights", default="every_call")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    dtype, shape = MODELS[options.model]
    with torch.device(options.place):
        model = AutoModelForCausalLM.from_config(
            LlamaConfig(**shape, max_position_embeddings=8192), dtype=dtype
        ).eval()
    weights = sum(one.numel() for one in model.parameters())
    ids = torch.randint(3, 32000, (1, options.tokens), device=options.place)
    with tempfile.TemporaryDirectory() as folder:
        cache = PrefixCache(
            model,
            host_tokens=16384,
            storage=f"file:{folder}",
            check_weights=options.check_weights,
        )
        found = _measured(model, cache, ids, options)
        cache.close()
    print(
        f"{weights / 1e6:.0f} M parameters, {options.tokens:,} tokens, {options.new} generated, "
        f"{options.threads} threads, {options.place}, median of {options.rounds}"
    )
    own = found["model.generate"]
    for name, rounds in found.items():
        print(f"{name:<16}", end="")
        for at, what in enumerate(("first token", "all", "CPU")):
            seconds = median(one[at] for one in rounds)
            shares = [one[at] / other[at] for one, other in zip(rounds, own, strict=True)]
            print(f"{what:>13} {seconds:7.3f} s {median(shares):7.1%}", end="")
        print()


def _measured(
    model: Any, cache: PrefixCache, ids: torch.Tensor, options: argparse.Namespace
) -> dict[str, list[tuple[float, ...]]]:
    """Seconds to the first token, seconds to the last one, and CPU seconds until everything is
    stored, too, by name and round. The first round is left out."""
    cases: dict[str, tuple[Callable[[], object], Any]] = {
        "model.generate": (lambda: None, model),
        "no hit": (lambda: cache.clear(storage=True) or cache.flush(), cache),
        "hit on device": (lambda: None, cache),
        "hit on host": (lambda: empty_device(cache), cache),
        "hit on disk": (lambda: empty_memory(cache), cache),
    }
    times: dict[str, list[tuple[float, ...]]] = {name: [] for name in cases}
    for _ in range(options.rounds + 1):
        for name, (prepare, one) in cases.items():
            cache.flush()
            prepare()
            watch, spent_s = Stopwatch(), time.process_time()
            one.generate(
                ids, max_new_tokens=options.new, min_new_tokens=options.new, streamer=watch
            )
            whole_s = time.perf_counter() - watch.began_s
            cache.flush()
            times[name].append((watch.first_s, whole_s, time.process_time() - spent_s))
    return {name: found[1:] for name, found in times.items()}


if __name__ == "__main__":
    main()
