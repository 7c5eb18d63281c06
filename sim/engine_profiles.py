"""Engines as data, by version: how an engine composes its passes, and its time outside them.

engines.toml has the profiles of each engine from the oldest version to the newest. Without a
version, `get` returns the newest; for one that is not in the table, the nearest, and the profile
says so (`note`). A user's own engine is a JSON file with the fields of an `EngineProfile`. After a
`?` come limits that are other than the engine's own: `vllm?max_running=64&token_budget=4096`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

from hicache.core.errors import CallerError, unknown
from hicache.files import FLAG, TEXT, Only, Spare, Value, fit, integer, parsed, text_of, word


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
    reserve_permille: int = 1000
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
    device_permille: int = 1000
    requested_version: str = ""

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


def _history(name: str, versions: Mapping[str, Mapping[str, Any]]) -> tuple[EngineProfile, ...]:
    """The profiles of all versions: each is the one before it with some fields changed."""
    profiles, values = [], dict[str, Any]()
    for version, changed in versions.items():
        values |= changed
        profiles.append(EngineProfile(name, version, **values))
    return tuple(profiles)


# No time of the host: the step overhead of the hardware profile stands for everything outside the
# kernels, with a time model that has it (`pure-roofline`).
PROFILE = EngineProfile("plain")
_TABLES = tomllib.loads(Path(__file__).with_name("engines.toml").read_text())
ENGINES = {"plain": (PROFILE,), **{name: _history(name, _TABLES[name]) for name in _TABLES}}
DEFAULT = "vllm"
_LIMITS = ("token_budget", "max_running")
_MOST_BYTES = 1 << 16
_MOST = (1 << 40) - 1
_SHAPES = {
    "name": Value("a name", lambda value: type(value) is str and value != ""),
    "requested_version": Value("none in a file", lambda value: False),
    "all_reduce": word("custom", "nccl", "fused"),
    "batching": word("mixed", "separate"),
    "reserve": word("estimated", "none", "whole"),
    "states": word("interval", "page"),
    "memory_permille": integer(1, 1000),
    "reserve_permille": integer(0, 1000),
    **dict.fromkeys((*_LIMITS, "device_permille"), integer(1, _MOST)),
    "str": TEXT,
    "int": integer(0, _MOST),
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
        if name not in _LIMITS or name in limits or not re.fullmatch(r"[1-9][0-9]{0,11}", value):
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
    return EngineProfile(**fit(document, _KEYS, path))
