"""vLLM. Up to 0.7 its V0 engine, which computes waiting prompts first and whole; from 0.8 on V1,
which gives every pass its decoding requests first and fills the budget with chunks.

Sources, in github.com/vllm-project/vllm where no other place is named: [v0] v0.7.3,
vllm/core/scheduler.py: prompts before decoding, not both, without chunked prefill; vllm/config.py:
256 sequences. [v1] vllm/v1/core/sched/scheduler.py: running requests first, one token budget for
all, no reserve, preemption by computing again. [args] vllm/engine/arg_utils.py: 8,192 tokens and
1,024 sequences for a server on H100 and later. [graphs] vllm/config/compilation.py: graphs up to
512 tokens, whole for decoding, in pieces for others. [states] 0.32.0, vllm/platforms/interface.py:
an attention block of at least as many bytes as a state, a multiple of 16 tokens; [v1],
mamba_cache_mode align, the default: states at ends of blocks, none where prompts branch off.
Assumed of earlier releases, and not measured. [async] pull request 19970: scheduling a step ahead,
an option at first, the default from 0.14 on. [optimization] docs.vllm.ai, Optimization and Tuning:
gpu_memory_utilization 0.9.

Times of the host are estimates of this project where they are not fitted.
"""

from __future__ import annotations

from .base import EngineProfile, history

_V0 = EngineProfile(
    name="vllm",
    version="0.6.0",
    batching="separate",  # [v0]
    chunked=False,  # [v0]
    token_budget=8192,  # max_model_len there; a longer prompt has a pass to itself here
    max_running=256,  # [v0]
    rank_limits=True,  # each rank of a data parallel server is an engine of its own
    memory_permille=900,  # [optimization]
    step_host_ns=3_000_000,
    per_sequence_host_ns=25_000,
    prefill_host_ns=500_000,
    request_host_ns=8_000_000,
    request_token_host_ns=1_000,
    graph_batch=256,  # vllm/worker/model_runner.py of that version
    launch_ns=5_000,
    logit_passes=6,
    sources="vLLM sources; times of the host estimated",
)

VERSIONS = history(
    _V0,
    (
        ("0.7.3", {"step_host_ns": 2_200_000, "per_sequence_host_ns": 20_000}),
        (
            "0.8.0",
            {
                "batching": "mixed",  # [v1]
                "chunked": True,  # [v1]
                "max_running": 1024,  # [args]
                "step_host_ns": 1_000_000,
                "per_sequence_host_ns": 8_000,
                "prefill_host_ns": 200_000,
                "request_host_ns": 6_000_000,
                "graph_batch": 512,  # [graphs]
                "graph_tokens": 512,  # [graphs]
                "states": "page",  # [states]
            },
        ),
        ("0.10.2", {}),
        ("0.11.2", {"step_host_ns": 900_000}),
        ("0.12.0", {}),
        (
            "0.14.0",
            {
                "overlap": True,  # [async]
                "lookahead": True,  # [async]
                "step_gap_ns": 200_000,
                "request_host_ns": 5_000_000,
            },
        ),
        ("0.15.1", {}),
        ("0.18.0", {}),
        ("0.20.1", {}),
    ),
)
