"""Two or three sentences that say what the figures of a replay mean, and what to try next.

Each sentence states figures of the report and nothing else; the rules are below, beside the words.
The report prints the sentences and the `--json` document has them as `conclusions`. Does not
compute hits or times; see traces/replaying.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass

from hicache.core.components.base import residency

from ..formats._jobs import Jobs
from ..formats.base import Trace
from ..replaying.load.trace import LoadedTrace
from ..replaying.options import ReplayOptions
from ..replaying.run import NS_PER_S, Run
from ..replaying.settings import Settings
from ..results.record import Result, Share
from ..terminal.tables import percent
from .advice import NEGLIGIBLE, device_pool, host_memory
from .fleet import fleet_sentences, prefilling
from .overload import MOST_LOAD, Load, eased
from .slo import sentences as limits_kept
from .stored import advice as storage_advice
from .stored import losses_told
from .stored import served as storage_served

_NO_LOAD = Load(0.0, 0.0)
NOTHING_REPEATS = (
    "Nothing in this trace repeats: no request shares a whole page with an earlier one, so no "
    "cache can hit anything."
)
_MANY = 0.5  # refusals for each request


_WAITS = {
    "writing_back": "waiting for copies",
    "arriving": "waiting for a load",
    "no_pages": "out of pages",
    "fetching": "waiting for a prefetch",
}
_NO_LACK = ("arriving", "fetching")  # refused until pages have arrived: no lack of pages


def conclusions(
    options: ReplayOptions,
    trace: Trace,
    settings: Settings,
    run: Run,
    found: Result,
    load: Load | None,
) -> list[str]:
    """The sentences. found: the figures of the run. load: None in `hits` mode, which has no
    clock."""
    limits = limits_kept(settings, run, found.slo)
    served = _of_served(options, settings, run, found, load)
    return [*left_out(trace.jobs, settings), *scaled(trace), *_closed(trace), *limits, *served]


def scaled(trace: Trace) -> list[str]:
    """What --scale-sessions made of the trace."""
    if not isinstance(trace, LoadedTrace) or trace.scale is None:
        return []
    scale, (before, now) = trace.scale, trace.scale.sessions
    told = "" if scale.named else " (requests that share a prefix, since it names none)"
    change = f"{before - now:,} are left out"
    if scale.factor > 1:
        change = f"{now - before:,} are copies with other contents that begin at other times"
    return [
        f"The replay has {float(scale.factor):g} times the sessions of the trace{told}: {now:,} "
        f"instead of {before:,}, with {scale.tokens:.3g} times the prompt tokens; {change} "
        "(--scale-sessions)."
    ]


def _closed(trace: Trace) -> list[str]:
    """What --closed-loop made of the trace."""
    if not isinstance(trace, LoadedTrace) or not trace.chained:
        return []
    why = {
        "sessions": "the request before it in its session",
        "prompts": "the request whose prompt it extends, since the trace names no sessions",
    }
    return [
        f"{trace.chained:,} of {len(trace.jobs):,} requests wait for {why[trace.told_by]} "
        "(--closed-loop)."
    ]


def left_out(jobs: Jobs, settings: Settings) -> list[str]:
    """That requests were left out or not cached, with their share of the trace; nothing if none
    were."""
    skipped, uncached = settings.skipped, settings.uncached
    if uncached.requests:
        count = len(uncached.requests)
        return [
            f"{count:,} of {len(jobs):,} requests with "
            f"{_percent(uncached.input_tokens / jobs.input_tokens)} of the prompt tokens "
            f"{'is' if count == 1 else 'are'} larger than the device pool and computed without the "
            "cache; --skip-too-large leaves such requests out."
        ]
    count = len(skipped.requests)
    if not count:
        return []
    share = _percent(skipped.input_tokens / jobs.input_tokens)
    return [
        f"{count:,} of {len(jobs):,} requests with {share} of the prompt tokens "
        f"{'was' if count == 1 else 'were'} left out (--skip-too-large), so the figures are not "
        "about the whole trace."
    ]


def _of_served(
    options: ReplayOptions, settings: Settings, run: Run, found: Result, load: Load | None
) -> list[str]:
    share = found.whole
    if not share.requests:
        return ["No request was served, so there is nothing to conclude."]
    load = load or _NO_LOAD
    if not share.ceiling_tokens:
        told = [NOTHING_REPEATS, *losses_told(found.storage)]
        return [*told, *_load(options, settings, found, load), *_slower(settings, load)]
    short = _short_of(settings, run, share)
    missed = _missed(found) if short is None else _without(share, short)
    sentences = [_memory(settings, run, found), *storage_served(settings, found)]
    if found.fleet is not None:
        sentences += fleet_sentences(found.fleet, share)
    sentences += [*_load(options, settings, found, load), missed]
    advice = _advice(options, settings, found, load, short)
    return [*sentences, advice] if advice else sentences


def _memory(settings: Settings, run: Run, found: Result) -> str:
    """What each tier served."""
    share, hits = found.whole, found.whole.hit_tokens
    device = _percent(share.rate(hits.device))
    if not settings.core.host_pages[0]:
        return f"The device served {device} of the prompt tokens; there is no host memory."
    if hits.host:
        saved = _saved(settings, run) if found.latency_s else ""
        return (
            f"Host memory served {hits.host:,} prompt tokens that the device did not hold "
            f"({_percent(share.rate(hits.host))} of all, beside {device} from the device){saved}."
        )
    served = f"The device served {device} of the prompt tokens and host memory none"
    if hits.storage:
        return f"{served}."
    if not found.evicted_pages.device:
        return f"{served}, because the device never evicted a page."
    if not run.backbone.backed_up:
        return f"{served}, because nothing was copied to it ({settings.core.write_policy})."
    return f"{served}: what it held was not asked for again, or was still on the device."


def _saved(settings: Settings, run: Run) -> str:
    return f", which saved about {_seconds(saved_s(settings, run))} of compute"


def saved_s(settings: Settings, run: Run) -> float:
    """Seconds of forward passes that the host hits saved, each request computed on its own."""
    costs = settings.time_model
    saved_ns = 0
    for row in run.account.rows():
        if row.host:
            with_host = [(row.device + row.host, row.input_tokens)]
            without = costs.layer_ns([(row.device, row.input_tokens)], 0, 0)
            saved_ns += without - costs.layer_ns(with_host, 0, 0)
    return saved_ns * costs.layers / NS_PER_S


def _load(options: ReplayOptions, settings: Settings, found: Result, load: Load) -> list[str]:
    share = f"{_percent(load.queueing)} of the time to first token"
    if load.overloaded and load.offered <= MOST_LOAD:
        return [f"Overloaded: the queue is long nearly all the time; queueing dominates ({share})."]
    if load.overloaded:
        return [
            f"Offered {load.offered:.1f} x what this machine can do; queueing dominates ({share})."
        ]
    if not load.queued:
        return []
    refused = for_pages(found.refused)
    if sum(refused.values()) >= _MANY * found.whole.requests:
        return [_pool_is_short(device_pool(options, settings, load), load, how_often(refused))]
    often = f"; requests were refused {how_often(refused)}" if refused else ""
    return [f"Requests spent {share} in the queue{often}."]


def _pool_is_short(advice: list[str], load: Load, often: str) -> str:
    """That requests wait for pages and not for computing, and what gives them more room."""
    begin = "The machine is not overloaded, but requests" if load.offered else "Requests"
    waits = f"; {_percent(load.queueing)} of the time to first token is queueing"
    if load.waits:
        waits = f" {load.waits:,.0f} times as long as they compute"
    tried = f" Try {_any_of(advice)}." if advice else ""
    return (
        f"{begin} wait{waits}: the device pool is too small for those that run at once, and "
        f"requests were refused {often}.{tried}"
    )


def _any_of(names: list[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


def _missed(found: Result) -> str:
    """How far the hits are from those of a cache without limits."""
    share = found.whole
    ceiling = _percent(share.ceiling_rate)
    if share.hit_tokens.all > share.ceiling_tokens:
        return (
            f"More was reused than this trace could leave in a cache: the hit rate is "
            f"{_percent(share.hit_rate)} and the ceiling {ceiling}. Storage had the rest from an "
            "earlier run."
        )
    if share.lost_rate < NEGLIGIBLE:
        return (
            "Nearly everything that could be reused was reused: the hit rate is "
            f"{_percent(share.hit_rate)} and the ceiling {ceiling}. The rest was seen for the "
            "first time, so more memory cannot help."
        )
    lost = f"{share.lost_tokens:,} tokens ({_percent(share.lost_rate)}) had been seen before"
    if prefilling(found.fleet) > 1:
        return f"{lost} and were on another replica, evicted, or still being computed."
    if not any(astuple(found.evicted_pages)):
        return f"{lost} and were still being computed by another request; nothing was evicted."
    return f"{lost} and were evicted, or still being computed, when they were asked for."


@dataclass(frozen=True, slots=True)
class _Short:
    """A component other than full whose windows or states were missing.

    tokens: lost where this component alone ended the hit. advice: empty if it evicted nothing, so
    that a larger pool would not help.
    """

    name: str
    kind: str
    tokens: int
    advice: str


def _short_of(settings: Settings, run: Run, share: Share) -> _Short | None:
    """The component that lost most, if it lost at least half of what was lost in all."""
    if len(run.components) < 2:
        return None
    size, capped = settings.core.page_size, run.lookups.capped()
    _, *others = run.components
    name = max(others, key=lambda one: capped[one].lost_pages)
    use, tokens = run.components[name], capped[name].lost_pages * size
    if share.lost_rate < NEGLIGIBLE or 2 * tokens < share.lost_tokens:
        return None
    state = residency(name) == "state"
    option = f"--{name}-states" if state else f"--{name}-tokens"
    wanted = 2 * use.capacity.device * (1 if state else size)
    advice = f"Try {option} {wanted}, twice the device pool of {name}."
    advice = advice if any(astuple(use.evicted)) else ""
    return _Short(name, "state" if state else "window", tokens, advice)


def _without(share: Share, short: _Short) -> str:
    return (
        f"{share.lost_tokens:,} tokens ({_percent(share.lost_rate)}) had been seen before and "
        f"were not hit. Full attention still had {short.tokens:,} of them, but {short.name} had no "
        f"{short.kind} there."
    )


def _advice(
    options: ReplayOptions, settings: Settings, found: Result, load: Load, short: _Short | None
) -> str:
    """What to try next, as an option; empty where nothing suggests itself."""
    share = found.whole
    if load.overloaded:
        return " ".join(_slower(settings, load))
    if short is not None:
        return short.advice
    if share.lost_rate >= NEGLIGIBLE and (tried := storage_advice(settings, found.storage)):
        return tried
    return host_memory(options, settings, found)


def _slower(settings: Settings, load: Load) -> list[str]:
    if not load.overloaded:
        return []
    return [f"Try {eased(load, settings)} to see the cache at a load that the machine can serve."]


def _percent(rate: float) -> str:
    return percent(rate, 1)


def _seconds(time_s: float) -> str:
    return f"{time_s:,.1f} s" if time_s < 100 else f"{time_s:,.0f} s"


def retries(refused: Mapping[str, int]) -> str:
    """Refusals that were retried: `703 waiting for copies, 12 out of pages of swa`."""
    parts = []
    for name, count in sorted(refused.items(), key=lambda item: (-item[1], item[0])):
        reason, of, component = name.partition(" of ")
        parts.append(f"{count:,} {_WAITS.get(reason, reason)}{of}{component}")
    return ", ".join(parts)


def for_pages(refused: Mapping[str, int]) -> dict[str, int]:
    """Those for lack of pages: none were free, or only after copies to host."""
    return {why: count for why, count in refused.items() if not why.startswith(_NO_LACK)}


def how_often(refused: Mapping[str, int]) -> str:
    """`12 times for lack of pages (8 out of pages, 4 waiting for copies)`; refused: not empty."""
    count = sum(refused.values())
    parts = f" ({retries(refused)})" if len(refused) > 1 else ""
    return f"{'once' if count == 1 else f'{count:,} times'} for lack of pages{parts}"
