"""SGLang: a pass computes prompts or decodes, and prompts go first.

Sources, in github.com/sgl-project/sglang: [prefill] python/sglang/srt/managers/scheduler.py: a
prefill batch, if there is one, runs before the decode batch; both in one pass only with
--enable-mixed-chunk. [adder] managers/schedule_policy.py: chunks fill chunked_prefill_size, so at
most one prompt is divided; a request is admitted if its prompt and output and the expected rest of
the running ones fit. [ratio] srt/environ.py: of the remaining tokens 0.7 are expected at first, and
0.14 of that after 600 decode steps. [args] srt/server_args.py: chunked_prefill_size 8,192 on 80 to
160 GB, decode graphs up to 160, later 512 sequences, memory about 0.88. [overlap] SGLang v0.4,
lmsys.org/blog/2024-12-04-sglang-v0-4: the host prepares the next batch while one runs, the default.
[dp] docs.sglang.ai, DP attention: chunked_prefill_size is divided among the ranks.
[pp] managers/scheduler_pp_mixin.py: as many micro-batches as stages; a micro-batch has at most
max_running_requests // pp_size requests.

Times of the host are estimates of this project where they are not fitted.
"""

from __future__ import annotations

from .base import EngineProfile, history

_FIRST = EngineProfile(
    name="sglang",
    version="0.4.0",
    batching="separate",  # [prefill]
    reserve="estimated",  # [adder]
    reserve_permille=700,  # [ratio]
    token_budget=8192,  # [args]
    max_running=2048,
    batch_limits=True,  # [pp]
    lookahead=True,  # [overlap]
    overlap=True,  # [overlap]
    memory_permille=880,  # [args]
    step_gap_ns=150_000,
    step_host_ns=800_000,
    per_sequence_host_ns=5_000,
    prefill_host_ns=200_000,
    request_host_ns=5_000_000,
    request_token_host_ns=1_000,
    graph_batch=160,  # [args]
    launch_ns=5_000,
    logit_passes=4,
    sources="SGLang sources; times of the host estimated",
)

VERSIONS = history(
    _FIRST,
    (
        ("0.5.1", {"graph_batch": 512}),  # [args]
        ("0.5.6", {}),
        ("0.5.9", {}),
    ),
)
