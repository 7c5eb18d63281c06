"""The rules by which a row or one of its figures is not judged. There is no other reason.

A rule is written down with its reason, and none of them looks at an error; docs/fidelity_method.md
says where they come from. Rules of rows leave the whole row out; rules of figures show a figure
without judging it.
"""

from __future__ import annotations

import hicache.models as models

from . import names
from .figures import HITS, THROUGHPUT, TPOT, TTFT, Figure
from .rows import Row
from .setup import LIMITS, accelerator, flags_of, known_accelerator, limits_of
from .single import is_copy, is_kernel, is_line, is_of_a_host, is_trace, trace_file
from .workloads import Load, load_of

RULES = {
    "contradiction": "the row's hicache_hardware is another accelerator than its gpu, or it has a "
    "second node of GPUs that no field explains",
    "too-fast": "NVIDIA's runs of Llama 8B on H200 with vLLM 0.12.0: with the requests in flight "
    "that they name, their times need up to the whole peak of the data sheet for matrix products "
    "alone, where all other rows need at most 47 %",
    "speculative": "runs of InferenceX that its published files list without a mark, and of which "
    "its configurations of that day have speculative decoding alone",
    "limits": "more than 64 requests at once, of which some may have waited, where neither the "
    "source nor its script says how many the server admits",
    "sampling": "the client samples with top-p over the whole vocabulary (ML.ENERGY), which the "
    "source does not time",
    "incomplete": "lengths, number of requests or server are not said, and nothing stands in for "
    "them",
    "no-trace": "the public trace that was replayed is not in the folder of traces",
    "no-model": "the model is not described in hicache/models",
    "no-hardware": "there is no profile of the accelerator",
    "other-link": "rates of networks and disks, which are no part of an accelerator's profile",
    "no-place": "the server cannot be built as published: weights that do not fit, or ranks that "
    "do not divide the heads",
    "no-times": "this time model has no times for it: no tables, or no single kernels",
}
NOT_FIRST = "not-first"
FIGURE_RULES = {
    "rc3-ttft": "TTFT of Llama 8B on H100 with TensorRT-LLM 1.0.0rc3, which falls and then rises "
    "with concurrency; its TPOT is judged",
    "start-up": "TTFT of DeepSeek on B200 with SGLang in November 2025 where the first prompts "
    "fill more than one pass: the script had no warm-up, so kernels are compiled while they wait; "
    "TPOT is judged",
    "old-attention": "decoding above 16,000 tokens of context with vLLM before 0.8, whose "
    "attention kernel is no longer in use; its TTFT is judged",
    "sm-copy": "copies by kernels, whose rate depends on how rows lie in memory; those of the copy "
    "engines are judged",
    NOT_FIRST: "another statistic or quantity than the one that is judged (see figures)",
    "overflow": "rounds in which the pool overflows: they depend on a random order that is not "
    "published",
    "undefined": "hit rates that the source rounds to a per cent and does not define",
}
# What a row may call the accelerator whose profile stands in for it.
_SAME = {("h800", "h100")}
_LONG = 16_000
_TOO_FAST = ("h200", "llama-3.1-8b", "vllm", "0.12.0")
# Runs of InferenceX with speculative decoding: model, engine, accelerator, weights, date, and ranks
# of a product (0 for any). See perf-changelog.yaml and .github/configs/nvidia-master.yaml at
# bf3456727 (first three), e28c038f8, 5d517074c, 0aae52d4c, 35d4bb367 and 12ba0ae07; at the fourth
# and the last, for the ranks and requests at once of the rows that are published.
_SPECULATIVE = {
    ("deepseek-v3", "trtllm", "b200", "fp4", "2026-01-14", 0),
    ("deepseek-v3", "trtllm", "b200", "fp8", "2026-01-14", 0),
    ("deepseek-v3", "trtllm", "h200", "fp8", "2026-01-14", 0),
    ("deepseek-v3", "trtllm", "h200", "fp8", "2026-01-28", 0),
    ("deepseek-v3", "trtllm", "b200", "fp8", "2026-02-05", 0),
    ("deepseek-v3", "trtllm", "b200", "fp4", "2026-02-06", 0),
    ("qwen3.5-397b-a17b", "sglang", "b200", "fp8", "2026-03-20", 0),
    ("deepseek-v3", "sglang", "b200", "fp8", "2026-03-25", 8),
}
# Runs of InferenceX whose script sent 512 requests at once, whatever its server admitted.
_SENT_512, _SENT = ("h100", "gpt-oss-120b", "vllm"), 512
_AT_ONCE = ("serving-closed-loop", "throughput-saturation")
_FEW = 64  # requests that every server admits at once
_COLD_DATES = ("2025-11-10", "2025-11-18")
_RELEVANT_SERVERS = ("vllm", "sglang", "trtllm")


def row_rule(row: Row) -> str:
    """The id of the rule that leaves this row out; "" for none."""
    if _contradicts(row):
        return "contradiction"
    if (row.hardware, row.model, row.engine, row.engine_version) == _TOO_FAST:
        return "too-fast"
    run = row.model, row.engine, row.hardware, row.weights, row.date
    if not _SPECULATIVE.isdisjoint({(*run, 0), (*run, row.tp)}):
        return "speculative"
    if "top_p" in row.note:
        return "sampling"
    if is_trace(row):
        return "" if trace_file(row) else "no-trace"
    if is_copy(row) and not is_of_a_host(row):
        return "other-link"
    if is_copy(row) or is_kernel(row):
        return "" if known_accelerator(accelerator(row)) else "no-hardware"
    return _server_rule(row)


def _server_rule(row: Row) -> str:
    if row.engine not in _RELEVANT_SERVERS:
        return "incomplete"
    hits = "hit_rate_by_round" in row.metrics
    load = None if is_line(row) else load_of(row)
    if load is None and not is_line(row):
        return "incomplete"
    if hits:
        return ""
    if accelerator(row) == names.NONE or not row.tp:
        return "incomplete"
    if row.model not in models.names():
        return "no-model"
    if not known_accelerator(accelerator(row)):
        return "no-hardware"
    return "limits" if load is not None and _may_wait(row, load) else ""


def _may_wait(row: Row, load: Load) -> bool:
    """Whether some requests may wait for a limit of the server that nobody says."""
    if not row.kind.startswith(_AT_ONCE):
        return False
    if (row.hardware, row.model, row.engine) == _SENT_512 and load.concurrency == _SENT:
        return True
    at_once = load.concurrency or len(load.jobs)
    return at_once > _FEW and limits_of(row, load.concurrency) == LIMITS[2]


def _contradicts(row: Row) -> bool:
    proposed, told = row.hardware, row.accelerator
    if told not in (proposed, names.NONE) and (told, proposed) not in _SAME:
        return True
    ranks = row.tp * row.pp * (row.dp_attention or 1)
    replicas = row.workload.get("concurrency_per_replica") or "closed-loop" not in row.kind
    return bool(row.tp and row.gpu_count > ranks and not replicas and row.ep <= ranks)


def figure_rule(row: Row, figure: Figure) -> str:
    """The id of the rule by which this figure is shown and not judged; "" for none."""
    rc3 = row.engine == "trtllm" and row.engine_version == "1.0.0rc3"
    if rc3 and figure.quantity == TTFT and (row.hardware, row.model) == ("h100", "llama-3.1-8b"):
        return "rc3-ttft"
    if figure.quantity == TTFT and _compiles(row):
        return "start-up"
    old = row.engine == "vllm" and () < names.version(row.engine_version) < (0, 8)
    if old and figure.quantity in (TPOT, THROUGHPUT) and _context(row) > _LONG:
        return "old-attention"
    if figure.judged:
        return ""
    if figure.quantity == HITS:
        return "undefined" if is_trace(row) else "overflow"
    return "sm-copy" if is_copy(row) else NOT_FIRST


def _compiles(row: Row) -> bool:
    """Whether the first prompts wait until kernels are compiled; see `start-up`."""
    if (row.model, row.engine, row.hardware) != ("deepseek-v3", "sglang", "b200"):
        return False
    load = load_of(row) if row.date in _COLD_DATES else None
    if load is None:
        return False
    first = load.jobs[: load.concurrency]
    return sum(one.input_length for one in first) > flags_of(row, load.concurrency).token_budget


def _context(row: Row) -> int:
    load = load_of(row)
    return load.mean_length if load is not None else 0
