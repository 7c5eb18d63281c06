"""The figures of a run, computed a second time from its accounts: sums, rates, percentiles.

By plain loops and sorted lists, with the definitions of docs/json.md. Every figure has the name of
its key in the document that `hicache replay --json` writes, with dots between the parts. Does not
observe a run (see accounts). What a run reports is compared with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil, fsum, isclose
from typing import Any, Protocol

from hicache.core.types import BACKBONE, Key, Tier

from ..base import HarnessFault
from ..books.tags import leading, tags_of
from .accounts import Accounts, Entry, Job

Figures = dict[str, object]
NS_PER_S = 1_000_000_000
_LEAST_REQUESTS = 10  # below, an offered load cannot be told


class Trace(Protocol):
    """A trace in pages, as the figures read it."""

    @property
    def page_size(self) -> int: ...
    @property
    def jobs(self) -> Sequence[Job]: ...
    @property
    def knows_output(self) -> bool: ...
    def prompt_key(self, job: Any, /) -> Key: ...
    def key(self, job: Any, length: int, /) -> Key: ...


def ceilings(trace: Trace, whole_prompts: bool) -> dict[int, int]:
    """Prompt tokens of each request that an unbounded cache would hit, by the tags of pages.

    whole_prompts: whether the last prompt token may hit.
    """
    seen: set[int] = set()
    found = {}
    for job in trace.jobs:
        if trace.knows_output:
            key = trace.key(job, job.input_length + job.output_length - 1)
        else:
            key = trace.prompt_key(job)
        pages: list[int] = tags_of(key).tolist()
        hit_pages = leading(pages, seen)
        whole = job.input_length // trace.page_size * trace.page_size
        if not whole_prompts:
            most = (job.input_length - 1) // trace.page_size * trace.page_size
        else:
            most = whole if trace.knows_output else job.input_length
        found[job.index] = min(hit_pages * trace.page_size, most)
        seen.update(pages)
    return found


def shares(accounts: Accounts, ceiling: dict[int, int], page_size: int) -> Figures:
    """The hits of all requests that ended, and of the second half of them."""
    served = list(accounts.served.items())
    figures: Figures = {"served_requests": len(served)}
    for name, some in (("whole", served), ("steady", served[len(served) // 2 :])):
        for key, value in _share(some, ceiling, page_size).items():
            figures[f"{name}.{key}"] = value
    return figures


def _share(some: list[tuple[int, Entry]], ceiling: dict[int, int], page_size: int) -> Figures:
    total = sum(one.input_tokens for _, one in some)
    hit = sum(one.hit_tokens for _, one in some)
    reachable = sum(ceiling[index] for index, _ in some)
    lost = sum(max(0, ceiling[index] - one.hit_tokens) for index, one in some)
    pages = sum(ceil(one.input_tokens / page_size) for _, one in some)
    return {
        "requests": len(some),
        "input_tokens": total,
        "hit_tokens.device": sum(one.device_tokens for _, one in some),
        "hit_tokens.host": sum(one.host_tokens for _, one in some),
        "hit_tokens.storage": sum(one.storage_tokens for _, one in some),
        "computed_tokens": total - hit,
        "hit_rate": hit / total if total else 0.0,
        "hit_rate_pages": (
            sum(ceil(one.hit_tokens / page_size) for _, one in some) / pages if pages else 0.0
        ),
        "hit_rate_mean": (
            fsum(one.hit_tokens / one.input_tokens for _, one in some) / len(some) if some else 0.0
        ),
        "ceiling_tokens": reachable,
        "ceiling_rate": reachable / total if total else 0.0,
        "first_seen_tokens": total - reachable,
        "lost_tokens": lost,
    }


def times(accounts: Accounts) -> Figures:
    """Latencies, throughput and load, in seconds of virtual time.

    Events do not say how much of a pass was a wait for a load; see `in_parts`.
    """
    served = list(accounts.served.values())
    makespan_ns = max((one.finish_ns for one in served), default=0)
    tokens = sum(one.output_tokens for one in served)
    several = [one for one in served if one.output_tokens > 1]
    figures: Figures = {
        "latency_s.makespan": makespan_ns / NS_PER_S,
        "output.tokens": tokens,
        "output.tokens_per_s": tokens / (makespan_ns / NS_PER_S) if makespan_ns else 0.0,
        "preempted": sum(one.preemptions for one in served),
    }
    for name, values in (
        ("ttft", [one.ttft_ns for one in served]),
        ("queue", [one.queue_ns for one in served]),
        (
            "tpot",
            [(one.finish_ns - one.first_token_ns) // (one.output_tokens - 1) for one in several],
        ),
    ):
        for key, value in spread_s(values).items():
            figures[f"latency_s.{name}.{key}"] = value
    gaps = sum(one.output_tokens - 1 for one in served)
    decoded_ns = sum(one.finish_ns - one.first_token_ns for one in served)
    figures["latency_s.itl.mean"] = decoded_ns / gaps / NS_PER_S if gaps else 0.0
    return figures | _load(served)


def limits(accounts: Accounts, given: Mapping[str, int]) -> Figures:
    """Which requests keep limits, and goodput. given: nanoseconds, by ttft, tpot or e2e. Events do
    not tell the times between tokens, so with a limit of these only the others are judged."""
    served = list(accounts.served.values())
    makespan_ns = max((one.finish_ns for one in served), default=0)
    figures: Figures = {}
    attained = served
    for name, limit in given.items():
        if name == "itl":
            continue
        late = [one for one in served if _measured(one, name) > limit]
        figures[f"slo.missed.{name}"] = len(late)
        attained = [one for one in attained if _measured(one, name) <= limit]
    if "itl" in given:
        return figures
    tokens = sum(one.output_tokens for one in attained)
    seconds = makespan_ns / NS_PER_S
    return figures | {
        "slo.attained_requests": len(attained),
        "slo.attained_rate": len(attained) / len(served) if served else 0.0,
        "slo.goodput_requests_per_s": len(attained) / seconds if seconds else 0.0,
        "slo.goodput_tokens_per_s": tokens / seconds if seconds else 0.0,
    }


def _measured(entry: Entry, name: str) -> Fraction:
    """The time that a limit is about, in nanoseconds."""
    if name == "ttft":
        return Fraction(entry.ttft_ns)
    if name == "e2e":
        return Fraction(entry.finish_ns - entry.arrival_ns)
    return Fraction(entry.finish_ns - entry.first_token_ns, max(1, entry.output_tokens - 1))


def in_parts(index: int, entry: Entry, load_ns: int, compute_ns: int) -> str:
    """What is wrong with the two parts of the time in passes; empty if nothing is."""
    if load_ns + compute_ns != entry.in_passes_ns:
        return (
            f"request {index}: expected {entry.in_passes_ns} ns in passes, found {load_ns} ns of "
            f"loads and {compute_ns} ns of computing"
        )
    if not 0 <= load_ns <= entry.with_loads_ns:
        return (
            f"request {index}: expected 0 to {entry.with_loads_ns} ns of waiting for loads, found "
            f"{load_ns}"
        )
    return ""


def spread_s(times_ns: Sequence[int]) -> dict[str, float]:
    """Mean and percentiles by nearest rank: the smallest value that so many do not exceed."""
    ordered = sorted(times_ns)
    found = {"mean": sum(ordered) / len(ordered) / NS_PER_S if ordered else 0.0}
    for percent in (50, 90, 95, 99):
        rank = -(-percent * len(ordered) // 100)
        found[f"p{percent}"] = ordered[rank - 1] / NS_PER_S if ordered else 0.0
    return found


def _load(served: Iterable[Entry]) -> Figures:
    entries = list(served)
    ttft_ns = sum(one.ttft_ns for one in entries)
    queueing = sum(one.queue_ns for one in entries) / ttft_ns if ttft_ns else 0.0
    timed = [one for one in entries if one.timed]
    arrivals = sorted(one.arrival_ns for one in timed)
    waited = [11 * one.queue_ns > 10 * one.ttft_ns for one in timed]
    offered = None
    if len(timed) >= _LEAST_REQUESTS and arrivals[-1] > arrivals[0]:
        answered_ns = max(one.first_token_ns for one in timed) - arrivals[0]
        offered = answered_ns / (arrivals[-1] - arrivals[0])
    return {
        "load.offered": offered,
        "load.queueing_share": queueing,
        "load.overloaded": offered is not None
        and queueing > 0.5
        and (offered > 1.1 or sum(waited) > 0.9 * len(timed)),
    }


def pages(
    accounts: Accounts,
    components: Sequence[str],
    page_bytes: Sequence[int],
    host_page_bytes: Sequence[int],
) -> Figures:
    """What was copied, evicted and refused. page_bytes, host_page_bytes: of a page of each
    component on a link to the device, and to the host."""
    backbone = components[BACKBONE]
    figures: Figures = {
        "evicted_pages.device": accounts.evicted[Tier.DEVICE, backbone],
        "evicted_pages.host": accounts.evicted[Tier.HOST, backbone],
    }
    figures["refused"] = {
        reason if name == backbone else f"{reason} of {name}": count
        for (reason, name), count in accounts.refused.items()
    }
    for way, copied, sizes in (
        ("d2h", accounts.backed_up, host_page_bytes),
        ("h2d", accounts.loaded, page_bytes),
    ):
        if not accounts.failed:  # a copy that fails moves nothing
            each = zip(components, sizes, strict=True)
            figures[f"transfers.{way}.bytes"] = sum(copied[name] * size for name, size in each)
    for name in components:
        figures |= {
            f"components.{name}.backed_up": accounts.backed_up[name],
            f"components.{name}.loaded": accounts.loaded[name],
            f"components.{name}.evicted.device": accounts.evicted[Tier.DEVICE, name],
            f"components.{name}.evicted.host": accounts.evicted[Tier.HOST, name],
        }
        if len(components) > 1:
            figures[f"components.{name}.most_in_use"] = accounts.peak_pages[name]
            figures[f"components.{name}.evicted_along"] = accounts.evicted_along[name]
    return figures


def prefetches(accounts: Accounts, page_size: int) -> Figures:
    """How prefetches ended; only of a run with storage."""
    names = ("requests", "asked_tokens", "found_tokens", "fetched_tokens")
    sizes = (1, page_size, page_size, page_size)
    return {
        "storage.prefetches.begun": accounts.lookups_begun,
        "storage.prefetches.ended": {
            reason: {
                name: count * size for name, count, size in zip(names, counts, sizes, strict=True)
            }
            for reason, counts in accounts.prefetches.items()
        },
    }


def lookups(
    accounts: Accounts, components: Sequence[str], ceiling: dict[int, int], page_size: int
) -> list[Figures]:
    """What the first admission of each request matched, and which component ended the hit."""
    found = []
    for index, one in sorted(accounts.entries.items()):
        if not one.counted:
            continue
        hit = one.hit_pages
        reached = dict(zip(components, one.depths, strict=True))
        first, least = one.depths[BACKBONE], min(one.depths)
        ending = [name for name, depth in reached.items() if depth == least]
        if hit >= one.wanted_pages:
            capped = ""
        elif hit >= first:
            known = ceil(ceiling[index] / page_size) > hit
            capped = components[BACKBONE] if known else "unseen"
        elif hit < least or len(ending) > 1:
            capped = "together"
        else:
            capped = ending[0]
        found.append(
            {
                "request": index,
                "wanted": one.wanted_pages * page_size,
                "device": one.device_pages * page_size,
                "host": (one.hit_pages - one.device_pages) * page_size,
                "depths": {name: depth * page_size for name, depth in reached.items()},
                "capped_by": capped,
            }
        )
    return found


def record(index: int, entry: Entry, ceiling: int, timed: bool) -> Figures:
    """The line of one request, as `hicache replay --requests` writes it."""
    figures: Figures = {
        "request": index,
        "input_tokens": entry.input_tokens,
        "hit_tokens": {
            "device": entry.device_tokens,
            "host": entry.host_tokens,
            "storage": entry.storage_tokens,
        },
        "computed_tokens": entry.input_tokens - entry.hit_tokens,
        "ceiling_tokens": ceiling,
        "first_seen_tokens": entry.input_tokens - ceiling,
        "lost_tokens": max(0, ceiling - entry.hit_tokens),
    }
    if timed:
        figures |= {
            "arrival_ns": entry.arrival_ns,
            "queue_ns": entry.queue_ns,
            "ttft_ns": entry.ttft_ns,
            "tpot_ns": int(_measured(entry, "tpot")) if entry.output_tokens > 1 else None,
            "finish_ns": entry.finish_ns,
            "refusals": entry.refusals,
            "preemptions": entry.preemptions,
        }
    return figures


CHECK = "ACCOUNTS"
SENTENCE = "The accounts of a run equal those counted a second time from its events."
_CLOSE = 1e-9  # two orders of the same sum


def check(figures: Figures, document: Mapping[str, object], replay: str = "") -> None:
    """Raises HarnessFault for the first figure that the document does not have."""
    wrong = next(differences(figures, document), "")
    if wrong:
        fail(wrong, replay)


def fail(equation: str, replay: str = "") -> None:
    raise HarnessFault(CHECK, SENTENCE, equation, (), replay)


def differences(figures: Figures, document: Mapping[str, object]) -> Iterator[str]:
    """The keys whose values differ, one sentence each."""
    for key, expected in figures.items():
        found = _value(document, key)
        if not _equal(expected, found):
            yield f"{key}: expected {expected!r}, found {found!r}"


def _value(document: Mapping[str, object], key: str) -> object:
    """The value of a key with dots; the name of a component or a reason may not have any."""
    value: object = document
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return "nothing"
        value = value[part]
    return value


def _equal(expected: object, found: object) -> bool:
    if isinstance(expected, float) and isinstance(found, float):
        return isclose(expected, found, rel_tol=_CLOSE, abs_tol=1e-15)
    return type(expected) is type(found) and expected == found
