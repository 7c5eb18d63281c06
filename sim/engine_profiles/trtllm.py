"""TensorRT-LLM: inflight batching, prompts and decoding in one pass.

Sources, at nvidia.github.io/TensorRT-LLM: [ifb] Paged Attention, IFB, and Request Scheduling:
requests of both phases in one pass, limited by max_batch_size (2,048) and max_num_tokens (8,192).
[capacity] Useful Runtime Options: GUARANTEED_NO_EVICT is the default, so a request begins only if
all pages that it may ever need are left; free_gpu_memory_fraction 0.9. [overlap] Overlap Scheduler:
the default of the PyTorch backend, one step ahead. [graphs] LLM API reference: CUDA graphs for
decode batches. [dp] Attention DP: each rank has max_num_tokens of its own.

Versions below 1.0 ran engines that were built ahead, with the C++ runtime. Times of the host are
estimates of this project where they are not fitted.
"""

from __future__ import annotations

from .base import EngineProfile, history

_BUILT = EngineProfile(
    name="trtllm",
    version="0.14.0",
    batching="mixed",  # [ifb]
    reserve="whole",  # [capacity]
    token_budget=8192,  # [ifb]
    max_running=2048,  # [ifb]
    rank_limits=True,  # [dp]
    memory_permille=900,  # [capacity]
    step_host_ns=400_000,
    per_sequence_host_ns=4_000,
    prefill_host_ns=50_000,
    request_host_ns=3_000_000,
    request_token_host_ns=500,
    launch_ns=2_500,
    logit_passes=3,
    all_reduce="fused",
    sources="TensorRT-LLM documentation; times of the host estimated",
)

VERSIONS = history(
    _BUILT,
    (
        ("0.20", {}),
        (
            "1.0.0rc3",
            {
                "overlap": True,  # [overlap]
                "lookahead": True,  # [overlap]
                "graph_batch": 2048,  # [graphs]; benchmarks set it to the concurrency
                "launch_ns": 4_000,
                "step_gap_ns": 100_000,
                "step_host_ns": 1_000_000,
                "per_sequence_host_ns": 6_000,
                "prefill_host_ns": 200_000,
            },
        ),
        ("1.1.0rc2.post2", {"stream_interval": 1}),
        ("1.2.0rc2", {}),
        ("1.2.0rc6", {}),
        ("1.3.0rc1", {}),
    ),
)
