"""The record of an engine profile: how an engine composes its passes, and its time outside them.

Lives here: the record and what its values may be. The figures with their sources are in the files
beside this one, one engine each. Does not schedule (see sim/engine) or compute the time of kernels
(a time model reads what it needs from here).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from hicache.core.errors import CallerError, unknown

ALL_REDUCES = ("custom", "nccl", "fused")
BATCHINGS = ("mixed", "separate")  # see sim/engine/batching
RESERVES = ("estimated", "none", "whole")  # see sim/engine/reserves
STATES = ("interval", "page")
_MOST = 1 << 40
_PERMILLE = 1000
_PARTS = ("memory_permille", "reserve_permille")  # of something, so at most all of it
_AT_LEAST_1 = (
    *("token_budget", "max_running", "stream_interval", "memory_permille", "device_permille"),
)


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """One engine of one version. Times in nanoseconds, lengths in tokens.

    How passes are composed:

    batching          one of sim/engine/batching: what a pass has beside decoding.
    chunked           a prompt may be divided among passes. Otherwise a pass has whole prompts, and
                      a prompt above the budget has one to itself.
    reserve           one of sim/engine/reserves: which pages must be left for what
                      running requests will still generate before another is admitted.
    reserve_permille  with "estimated": the part of the remaining tokens that is expected.
    token_budget      tokens of one pass; see EngineOptions.
    max_running       maximum number of admitted requests.
    rank_limits       token_budget and max_running are those of one attention rank.
    batch_limits      with pipeline stages, max_running is divided among the micro-batches.
    lookahead         a pass is composed while the one before it runs, so a request that comes
                      during a pass joins the one after the next.
    memory_permille   part of the device memory that the engine uses.
    stream_interval   the client gets the first token, and then so many at a time.
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
    request_serial_ns       of each request, one after another: requests of one burst wait for it.

    What time models read of an engine:

    graph_batch     largest decode batch that is launched as one CUDA graph; 0 for none.
    graph_tokens    largest other pass that is launched as graphs; 0 for none.
    launch_ns       of one kernel that is not part of a graph.
    logit_passes    how often the logits of a sampled token are read or written.
    all_reduce      "custom" (a kernel for small messages, NCCL for others), "nccl", or "fused"
                    with the normalisation that follows.
    device_permille time of this version's kernels, in thousandths of the time model's.

    sources         where these figures are from, in one line; "fitted" names those that are.
    asked           the version that was asked for, if it is another one.
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
    stream_interval: int = 1
    states: str = "interval"
    step_gap_ns: int = 0
    step_host_ns: int = 0
    per_sequence_host_ns: int = 0
    prefill_host_ns: int = 0
    overlap: bool = False
    request_host_ns: int = 0
    request_token_host_ns: int = 0
    request_serial_ns: int = 0
    graph_batch: int = 0
    graph_tokens: int = 0
    launch_ns: int = 0
    logit_passes: int = 0
    all_reduce: str = "custom"
    device_permille: int = _PERMILLE
    sources: str = ""
    asked: str = ""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            least = int(one.name in _AT_LEAST_1)
            most = _PERMILLE if one.name in _PARTS else _MOST - 1
            if type(value) is int and not least <= value <= most:
                raise CallerError(
                    f"engine {self.name}: {one.name}: expected {least} to {most}, found {value}"
                )
        named = {"all_reduce": ALL_REDUCES, "batching": BATCHINGS, "reserve": RESERVES}
        named |= {"states": STATES}
        for name, known in named.items():
            if (found := getattr(self, name)) not in known:
                raise CallerError(f"engine {self.name}: {unknown(name, found, known)}")

    @property
    def label(self) -> str:
        """Its name as --engine takes it."""
        return f"{self.name}@{self.version}" if self.version else self.name

    @property
    def note(self) -> str:
        """What to say about a version that is not known; empty for one that is."""
        if not self.asked:
            return ""
        return f"version {self.asked} is not known; {self.version} is the nearest one that is"


_FINAL = 1 << 20
_PATTERN = re.compile(r"v?(\d{1,6})(?:\.(\d{1,6}))?(?:\.(\d{1,6}))?(?:[.-]?(rc)(\d{1,6}))?.*")


def number(version: str) -> tuple[int, ...]:
    """A version in an order: 1.0.0rc3 comes before 1.0.0, and 0.5.1.post1 counts as 0.5.1. A text
    that does not begin with a number, such as nightly, comes after all others."""
    found = _PATTERN.fullmatch(version)
    if found is None:
        return (_FINAL,)
    major, minor, patch, candidate, count = found.groups()
    return (
        *(int(part or 0) for part in (major, minor, patch)),
        int(count) if candidate else _FINAL,
    )


def nearest(version: str, known: Sequence[EngineProfile]) -> EngineProfile:
    """The newest known version that is not newer than this one; the oldest one if all are."""
    for profile in known:
        if profile.version == version:
            return profile
    asked = number(version)
    earlier = [profile for profile in known if number(profile.version) <= asked]
    return earlier[-1] if earlier else known[0]


def history(
    first: EngineProfile, changes: Sequence[tuple[str, dict[str, Any]]]
) -> tuple[EngineProfile, ...]:
    """The profiles of all versions: each is the one before it with some fields changed."""
    found = [first]
    for version, changed in changes:
        found.append(replace(found[-1], version=version, **changed))
    return tuple(found)
