"""Engines as data, by version: how an engine composes its passes, and its time outside them.

`ENGINES` has the profiles of each engine from the oldest version to the newest. Without a version,
`get` returns the newest; for one that is not in the table, the nearest, and the profile says so
(`note`). A user's own engine is a JSON file with the fields of an `EngineProfile`. After a `?` come
limits that are other than the engine's own: `vllm?max_running=64&token_budget=4096`.

Times of the host are estimates of this project where they are not fitted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from hicache.core.errors import CallerError, unknown
from hicache.files import FLAG, INTEGER, TEXT, Only, Spare, Value, fit, parsed, text_of

ALL_REDUCES = ("custom", "nccl", "fused")
BATCHINGS = ("mixed", "separate")
RESERVES = ("estimated", "none", "whole")
STATES = ("interval", "page")
_MOST = 1 << 40
_PERMILLE = 1000
_PARTS = ("memory_permille", "reserve_permille")  # of something, so at most all of it
_AT_LEAST_1 = (*("token_budget", "max_running", "memory_permille", "device_permille"),)


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """One engine of one version. Times in nanoseconds, lengths in tokens.

    How passes are composed:

    batching          "mixed" (one budget, decoding first), or "separate" (while there are chunks of
                      prompts, decoding waits).
    chunked           a prompt may be divided among passes. Otherwise a pass has whole prompts, and
                      a prompt above the budget has one to itself.
    reserve           which pages must be left for what running requests will still generate before
                      another is admitted (see sim/engine/running).
    reserve_permille  with "estimated": the part of the remaining tokens that is expected.
    token_budget      tokens of one pass; see EngineOptions.
    max_running       maximum number of admitted requests.
    rank_limits       token_budget and max_running are those of one attention rank.
    batch_limits      with pipeline stages, max_running is divided among the micro-batches.
    lookahead         a pass is composed while the one before it runs, so a request that comes
                      during a pass joins the one after the next.
    memory_permille   part of the device memory that the engine uses.
    states            where states of linear layers are kept for later prompts, at the end of a
                      pass: "interval" (at multiples of the model's interval, and where a prompt
                      leaves what is known), or "page" (at multiples of a page of attention that
                      has as many bytes as a state, and nowhere else).

    Time of the host, added by the simulated engine:

    step_gap_ns             of each pass, while the device waits whatever else overlaps.
    step_host_ns            of each pass: scheduling, inputs, launch of a graph, handling outputs.
    per_sequence_host_ns    of each sequence in a pass.
    prefill_host_ns         of each chunk of a prompt in a pass.
    overlap                 a pass takes the longer of host and device, not their sum; the gap is
                            added in any case.
    request_host_ns         of each request outside the passes: client, HTTP, tokeniser, and the
                            way back. It counts before the scheduler sees the request, which no
                            client can tell from a part of it after the first token.
    request_token_host_ns   of each prompt token, likewise.

    What time models read of an engine:

    graph_batch     largest decode batch that is launched as one CUDA graph; 0 for none.
    graph_tokens    largest other pass that is launched as graphs; 0 for none.
    launch_ns       of one kernel that is not part of a graph.
    logit_passes    how often the logits of a sampled token are read or written.
    all_reduce      "custom" (a kernel for small messages, NCCL for others), "nccl", or "fused"
                    with the normalisation that follows.
    device_permille time of this version's kernels, in thousandths of the time model's.

    requested_version  the version that was asked for, if it is another one.
    """

    name: str
    version: str = ""
    batching: str = "mixed"
    chunked: bool = True
    reserve: str = "none"
    reserve_permille: int = _PERMILLE
    token_budget: int = 8192
    max_running: int = 256
    rank_limits: bool = False
    batch_limits: bool = False
    lookahead: bool = False
    memory_permille: int = 900
    states: str = "interval"
    step_gap_ns: int = 0
    step_host_ns: int = 0
    per_sequence_host_ns: int = 0
    prefill_host_ns: int = 0
    overlap: bool = False
    request_host_ns: int = 0
    request_token_host_ns: int = 0
    graph_batch: int = 0
    graph_tokens: int = 0
    launch_ns: int = 0
    logit_passes: int = 0
    all_reduce: str = "custom"
    device_permille: int = _PERMILLE
    requested_version: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = int(field.name in _AT_LEAST_1)
            most = _PERMILLE if field.name in _PARTS else _MOST - 1
            if type(value) is int and not least <= value <= most:
                raise CallerError(
                    f"engine {self.name}: {field.name}: expected {least} to {most}, found {value}"
                )
        named = {"all_reduce": ALL_REDUCES, "batching": BATCHINGS, "reserve": RESERVES}
        named |= {"states": STATES}
        for name, known in named.items():
            if (result := getattr(self, name)) not in known:
                raise CallerError(f"engine {self.name}: {unknown(name, result, known)}")

    def host_ns(self, decoding: int, chunks: int) -> tuple[int, int]:
        """(added, least): with `device_ns` of the device, a pass over so many decoding sequences
        and chunks takes max(device_ns + added, least)."""
        host_ns = self.step_host_ns + self.per_sequence_host_ns * (decoding + chunks)
        host_ns += self.prefill_host_ns * chunks + self.step_gap_ns
        return (self.step_gap_ns, host_ns) if self.overlap else (host_ns, 0)

    @property
    def label(self) -> str:
        """Its name as --engine takes it."""
        return f"{self.name}@{self.version}" if self.version else self.name

    @property
    def note(self) -> str:
        """What to say about a version that is not known; empty for one that is."""
        if not self.requested_version:
            return ""
        return (
            f"version {self.requested_version} is not known; {self.version} is the nearest one "
            "that is"
        )


_FINAL = 1 << 20
_PATTERN = re.compile(r"v?(\d{1,6})(?:\.(\d{1,6}))?(?:\.(\d{1,6}))?(?:[.-]?(rc)(\d{1,6}))?.*")


def _number(version: str) -> tuple[int, ...]:
    """A version in an order: 1.0.0rc3 comes before 1.0.0, and 0.5.1.post1 counts as 0.5.1. A text
    that does not begin with a number, such as nightly, comes after all others."""
    match = _PATTERN.fullmatch(version)
    if match is None:
        return (_FINAL,)
    *parts, candidate, count = match.groups()
    return (*(int(part or 0) for part in parts), int(count) if candidate else _FINAL)


def _history(
    first: EngineProfile, changes: Mapping[str, Mapping[str, Any]]
) -> tuple[EngineProfile, ...]:
    """The profiles of all versions: each is the one before it with some fields changed."""
    profiles = [first]
    for version, changed in changes.items():
        profiles.append(replace(profiles[-1], version=version, **changed))
    return tuple(profiles)


# No time of the host: the step overhead of the hardware profile stands for everything outside the
# kernels, with a time model that has it (`pure-roofline`).
PROFILE = EngineProfile(name="plain")
# Sources, in github.com/sgl-project/sglang: [prefill] python/sglang/srt/managers/scheduler.py: a
# prefill batch, if there is one, runs before the decode batch; both in one pass only with
# --enable-mixed-chunk. [adder] managers/schedule_policy.py: chunks fill chunked_prefill_size, so at
# most one prompt is divided; a request is admitted if its prompt and output and the expected rest
# of the running ones fit. [ratio] srt/environ.py: of the remaining tokens 0.7 are expected at
# first, and 0.14 of that after 600 decode steps. [args] srt/server_args.py: chunked_prefill_size
# 8,192 on 80 to 160 GB, decode graphs up to 160, later 512 sequences, memory about 0.88. [overlap]
# SGLang v0.4, lmsys.org/blog/2024-12-04-sglang-v0-4: the host prepares the next batch while one
# runs, the default. DP attention (docs.sglang.ai): chunked_prefill_size is divided among the ranks.
# [pp] managers/scheduler_pp_mixin.py: as many micro-batches as stages; a micro-batch has at most
# max_running_requests // pp_size requests.
_SGLANG = EngineProfile(
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
)
# Sources, at nvidia.github.io/TensorRT-LLM: [ifb] Paged Attention, IFB, and Request Scheduling:
# requests of both phases in one pass, limited by max_batch_size (2,048) and max_num_tokens (8,192).
# [capacity] Useful Runtime Options: GUARANTEED_NO_EVICT is the default, so a request begins only if
# all pages that it may ever need are left; free_gpu_memory_fraction 0.9. [overlap] Overlap
# Scheduler: the default of the PyTorch backend, one step ahead. [graphs] LLM API reference: CUDA
# graphs for decode batches. [dp] Attention DP: each rank has max_num_tokens of its own. Versions
# below 1.0 ran engines that were built ahead, with the C++ runtime.
_TRTLLM = EngineProfile(
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
)
# Up to 0.7 its V0 engine, which computes waiting prompts first and whole; from 0.8 on V1, which
# gives every pass its decoding requests first and fills the budget with chunks. Sources, in
# github.com/vllm-project/vllm where no other place is named: [v0] v0.7.3, vllm/core/scheduler.py:
# prompts before decoding, not both, without chunked prefill; vllm/config.py: 256 sequences. [v1]
# vllm/v1/core/sched/scheduler.py: running requests first, one token budget for all, no reserve,
# preemption by computing again. [args] vllm/engine/arg_utils.py: 8,192 tokens and 1,024 sequences
# for a server on H100 and later. [graphs] vllm/config/compilation.py: graphs up to 512 tokens,
# whole for decoding, in pieces for others. [states] 0.32.0, vllm/platforms/interface.py: an
# attention block of at least as many bytes as a state, a multiple of 16 tokens; [v1],
# mamba_cache_mode align, the default: states at ends of blocks, none where prompts branch off.
# Assumed of earlier releases, and not measured. [async] pull request 19970: scheduling a step
# ahead, an option at first, the default from 0.14 on. [optimization] docs.vllm.ai, Optimization and
# Tuning: gpu_memory_utilization 0.9.
_VLLM = EngineProfile(
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
)
ENGINES: dict[str, tuple[EngineProfile, ...]] = {
    "plain": (PROFILE,),
    "sglang": _history(_SGLANG, {"0.5.1": {"graph_batch": 512}, "0.5.6": {}, "0.5.9": {}}),
    "trtllm": _history(
        _TRTLLM,
        {
            "0.20": {},
            "1.0.0rc3": {
                "overlap": True,  # [overlap]
                "lookahead": True,  # [overlap]
                "graph_batch": 2048,  # [graphs]; benchmarks set it to the concurrency
                "launch_ns": 4_000,
                "step_gap_ns": 100_000,
                "step_host_ns": 1_000_000,
                "per_sequence_host_ns": 6_000,
                "prefill_host_ns": 200_000,
            },
            **{name: {} for name in ("1.1.0rc2.post2", "1.2.0rc2", "1.2.0rc6", "1.3.0rc1")},
        },
    ),
    "vllm": _history(
        _VLLM,
        {
            "0.7.3": {"step_host_ns": 2_200_000, "per_sequence_host_ns": 20_000},
            "0.8.0": {
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
            "0.10.2": {},
            "0.11.2": {"step_host_ns": 900_000},
            "0.12.0": {},
            "0.14.0": {
                "overlap": True,  # [async]
                "lookahead": True,  # [async]
                "step_gap_ns": 200_000,
                "request_host_ns": 5_000_000,
            },
            **{name: {} for name in ("0.15.1", "0.18.0", "0.20.1")},
        },
    ),
}
DEFAULT = "vllm"
_LIMITS = ("token_budget", "max_running")
_MOST_BYTES = 1 << 16
_SHAPES = {
    "name": Value("a name", lambda value: type(value) is str and value != ""),
    "requested_version": Value("none in a file", lambda value: False),
    "str": TEXT,
    "int": INTEGER,
    "bool": FLAG,
}
_KEYS = Only(
    {
        field.name: shape if field.default is MISSING else Spare(shape)
        for field in fields(EngineProfile)
        for shape in [_SHAPES.get(field.name) or _SHAPES[str(field.type)]]
    }
)


def names() -> list[str]:
    """Names of all engines, sorted."""
    return list(ENGINES)


def get(text: str) -> EngineProfile:
    """The profile of NAME, NAME@VERSION or a JSON file, with the limits after a `?`. Raises
    CallerError, which lists the known names."""
    named, asks, query = text.partition("?")
    if asks:
        return replace(get(named), **_limits(query))
    if is_path(text):
        return _read(text)
    name, at, version = text.partition("@")
    if name not in ENGINES:
        raise unknown("engine", name, names())
    known = ENGINES[name]
    if at and not version:
        raise CallerError(f"engine: expected NAME or NAME@VERSION, found {text!r}")
    if not version:
        return known[-1]
    if not known[-1].version:
        raise CallerError(f"engine: expected {name} without a version, found {version!r}")
    exact = [profile for profile in known if profile.version == version]
    earlier = [profile for profile in known if _number(profile.version) <= _number(version)]
    return exact[0] if exact else replace((earlier or known[:1])[-1], requested_version=version)


def _limits(query: str) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if name not in _LIMITS or name in limits or not re.fullmatch(r"[0-9]{1,12}", value):
            raise CallerError(
                f"engine: expected ?{'=N&'.join(_LIMITS)}=N or one of them, found {query!a}"
            )
        limits[name] = int(value)
    return limits


def is_path(text: str) -> bool:
    """Whether an engine is named by the path of a file."""
    return "/" in path_of(text) or path_of(text).endswith(".json")


def path_of(text: str) -> str:
    """What names the engine, without limits."""
    return text.partition("?")[0]


def _read(path: str) -> EngineProfile:
    """Reads a profile. Raises CallerError with one line that names the field."""
    try:
        document = parsed(text_of(path, "engine profile", _MOST_BYTES))
    except ValueError as error:
        raise CallerError(f"{path}: expected an engine profile in JSON, found {error}") from None
    values = fit(document, _KEYS, path)
    try:
        return EngineProfile(**values)
    except CallerError as error:
        raise CallerError(f"{path}: {error}") from None
