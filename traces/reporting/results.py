"""The record of a replay, and one for each request, from what was counted; what limits it, and what
to try next (docs/replay.md).

    offered load = (last first token - first arrival) / (last arrival - first arrival)
    queueing     = time that requests waited for a forward pass / time to first token, summed

Only requests with an arrival time count for the load: a request that waits for another one (a
closed loop) slows down with the machine. A machine is overloaded if requests spent most of the time
to their first token in the queue, and if it took a tenth longer than the arrivals or its queue was
long nearly all the time: nine tenths of the requests waited ten times as long as their passes took.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from math import ceil, floor, log10, sqrt
from typing import Any

import numpy as np
from msgspec.structs import replace

from hicache import registry
from hicache.core.components import residency
from hicache.core.errors import CallerError
from hicache.core.types import Tier
from hicache.storage.base import Status
from sim.engine.pipeline import StageUse
from sim.engine.sequence import RequestResult
from sim.fleet import FleetResult, Trip
from sim.replica import LinkUse
from sim.times import base as times
from sim.times.base import Parallelism

from .. import error_bars, plugins
from ..formats.base import Jobs, Paged
from ..replaying.account import BETWEEN, COMPLETE, FIRST_SEEN, Kept, Latency, Tally, kept, spread
from ..replaying.config import ReplayConfig
from ..replaying.options import BACKBONE, ReplayOptions
from ..replaying.playing import Play
from ..replaying.sizes import memory_of
from ..replaying.traffic import NAMES, NS_PER_S, Slo
from ..results import record
from ..results.record import Limit, Pair, Request, Result
from . import percent

MOST_LOAD = 1.1
MIXED, PREFILL, DECODE = "mixed", "prefill", "decode"
_MOST_WAITING = 0.9
_LEAST_REQUESTS = 10  # to tell a load, or in a batch
_STUDENT = {5: 2.78, 10: 2.26, 20: 2.09}  # standard errors of the mean of so many, at 95 %
_RULE_OF_THREE = 3
_PART = 0.9  # of what the machine can do, for the advice
_MANY = 0.5  # refusals for each request
_BY_PREFIX = "prefix_aware"  # the router that sends a prompt where its prefix is
_NO_LACK = ("arriving", "fetching")  # refused until pages have arrived: no lack of pages
_NEGLIGIBLE = 0.01  # of the prompt tokens
_MOST_RATIO = 16
_MOST_TRIES = 3


def result_of(play: Play) -> Result:
    """The figures of a replay."""
    config, tally, parts, account = play.config, play.tally, play.parts, play.account
    share, components = account.total(), _components(play)
    copies = {
        "d2h": _transfer(config, [part.d2h for part in parts], tally.backed_up),
        "h2d": _transfer(config, [part.h2d for part in parts], tally.loaded),
    }
    turns = account.by_turn(play.turns) or None
    result = Result(
        interrupted=play.interrupted,
        served_requests=share.requests,
        trace=record.TraceFigures.of(play.trace),
        config=config.as_options(),
        total=share,
        steady=account.steady(),
        lost_by_reason=_lost_by_reason(play),
        refused={
            reason if component == BACKBONE else f"{reason} of {component}": count
            for (reason, component), count in tally.refused.items()
        },
        transfers=copies,
        storage=_storage(play) if play.stores else None,
        evicted_pages=components[config.core.components[0]].evicted,
        components=components,
        turns_from=turns and play.turns_from,
        turns=turns,
        checks=_checks(play),
        fleet=None if config.fleet is None else _fleet(play),
        measured=play.trace.measured,
        digest=play.digest,
        wall_s=round(play.wall_s, 3),
    )
    latency = play.latency
    if latency is None:
        return result
    load = load_of(play.trace.jobs, latency, config.load.concurrency)
    return replace(
        result,
        latency_s=latency.figures,
        output=latency.output,
        slo=None if config.slo is None else goodput(config.slo, latency),
        load=load,
        times_from=config.time_model.label,
        stages=_stages([part.stages for part in parts if part.stages is not None]),
        expected_error=_expected(play, latency, load.queueing_share),
        preempted=sum(request.retractions for request in latency.requests),
    )


def _lost_by_reason(play: Play) -> dict[str, int]:
    """What tokens were lost to, as far as somebody followed them."""
    tokens: Counter[str] = Counter()
    for row in play.account.rows():
        if row["lost_tokens"]:
            miss = play.misses.get(row["request"])
            followed = miss is not None and miss.ended_by not in (COMPLETE, FIRST_SEEN)
            tokens[miss.ended_by if miss and followed else record.NOT_FOLLOWED] += row[
                "lost_tokens"
            ]
    return dict(tokens.most_common())


# -- pools, copies, checks


def _transfer(
    config: ReplayConfig, links: Sequence[LinkUse], pages: Counter[str]
) -> record.Transfer:
    """links: of each replica, none without a clock. pages: that were copied, by component."""
    ranks, sizes = config.parallelism, zip(config.core.components, config.page_bytes, strict=True)
    # of one rank of each stage and group that attends
    moved = sum(link.bytes for link in links)
    if not links:
        moved = sum(pages[name] * size for name, size in sizes)
    each, total = moved // (ranks.attention_dp * ranks.pp), moved * config.page_ranks
    busy_s = sum(link.busy_ns for link in links) / NS_PER_S if links else None
    return record.Transfer(moved, each, total, busy_s)


def _components(play: Play) -> dict[str, record.Component]:
    """The use of each component's pools in all replicas."""
    config, tally, core = play.config, play.tally, play.config.core
    result = {}
    for place, name in enumerate(core.components):
        size, total = config.rank_page_bytes[place], config.page_bytes[place] * config.page_ranks
        pages = Pair(core.device_pages[place], core.host_pages[place])
        capacity = pages.times(len(play.observers))
        result[name] = record.Component(
            page_bytes=size,
            page_bytes_total=total,
            capacity=capacity,
            pool_bytes_per_rank=capacity.times(size),
            pool_bytes_total=capacity.times(total),
            backed_up=tally.backed_up[name],
            loaded=tally.loaded[name],
            evicted=_evicted(tally, name),
        )
    return result


def _evicted(tally: Tally, component: str) -> Pair:
    return Pair(tally.evicted[Tier.DEVICE, component], tally.evicted[Tier.HOST, component])


def _checks(play: Play) -> record.Checks:
    checkers, parts = play.checkers, play.parts if play.checkers else ()
    beside = [item.differential for item in checkers if item.differential is not None]
    return record.Checks(
        level=play.config.check,
        operations=sum(checker.operations for checker in checkers),
        incremental=sum(checker.incremental for checker in checkers),
        full=sum(checker.full for checker in checkers),
        violations=sum(checker.violations for checker in checkers),
        byte_checks=sum(part.byte_checks for part in parts),
        access_checks=sum(part.access_checks for part in parts),
        specified=sum(item.compared for item in beside),
        specified_nodes=max((item.nodes for item in beside), default=0),
        specified_pages=max((item.pages for item in beside), default=0),
        not_judged=next((item.unspecified for item in beside if item.unspecified), ""),
    )


def _stages(used: Sequence[StageUse]) -> record.Stages | None:
    """The use of the stages, of all replicas together; None without stages."""
    if not used:
        return None
    computing = [sum(each) for each in zip(*(item.computing_ns for item in used), strict=True)]
    full = sum(stage_use.under_way_ns for stage_use in used)
    idle = [1 - each / full if full else 0.0 for each in computing]
    return record.Stages([each / NS_PER_S for each in computing], full / NS_PER_S, idle)


def _storage(play: Play) -> record.Storage:
    """What all replicas moved together to and from the one store that they share."""
    size, tally, stores = play.config.core.page_size, play.tally, play.stores
    by_reason = {
        reason: record.Ended(
            requests=ended["requests"],
            asked_tokens=ended["asked_pages"] * size,
            found_tokens=ended["found_pages"] * size,
            fetched_tokens=ended["fetched_pages"] * size,
        )
        for reason, ended in tally.ended.items()
    }
    reads, writes = [part.reads for part in play.parts], [part.writes for part in play.parts]
    return record.Storage(
        prefetches=record.PrefetchFigures(tally.lookups, by_reason),
        stores=tally.stores,
        read=_moved(play.config, [store.moved.read for store in stores], reads),
        written=_moved(play.config, [store.moved.written for store in stores], writes),
        losses=sum((store.moved.losses for store in stores), stores[0].contents.losses),
        evicted_values=stores[0].contents.evicted,
    )


def _moved(
    config: ReplayConfig,
    stores: Sequence[Mapping[str, Counter[Status]]],
    links: Sequence[LinkUse | None],
) -> record.Moved:
    sizes, values, moved = config.value_bytes, Counter[str](), 0
    for store in stores:
        moved += sum(ends[Status.DONE] * sizes[name] for name, ends in store.items())
        for statuses in store.values():
            values.update({str(status): count for status, count in statuses.items()})
    busy = [link.busy_ns for link in links if link is not None]
    return record.Moved(moved, sum(busy) / NS_PER_S if busy else None, dict(values))


# -- replicas


def _fleet(play: Play) -> record.Fleet:
    """What each replica did."""
    fleet, rows, replicas = play.fleet, list(play.account.rows()), []
    for place in range(fleet.members):
        own = [row for row in rows if play.choices[row["request"]] == place]
        prefills = place < fleet.replicas
        role = (PREFILL if fleet.decode else MIXED) if prefills else DECODE
        prompts = sum(row["input_tokens"] for row in own)
        hits = sum(row["hit_tokens"].all for row in own)
        ended = play.parts[place].requests if play.parts else ()
        ttft = [request.first_token_ns - request.arrival_ns for request in ended if prefills]
        # a prefill replica samples the first token of each answer
        sampled = sum(max(1, request.output_length) - (role == DECODE) for request in ended)
        replicas.append(
            record.Replica(
                replica=place,
                role=role,
                requests=len(own if prefills else ended),
                input_tokens=prompts,
                hit_tokens=hits,
                hit_rate=hits / prompts if prompts else None,
                computed_tokens=prompts - hits,
                output_tokens=sampled,
                ttft_s=spread(np.array(ttft, dtype=np.int64)) if ttft else None,
                evicted_pages=_evicted(play.tallies[place], BACKBONE),
                checked_operations=play.checkers[place].operations if play.checkers else 0,
                digest=play.digests[place],
            )
        )
    prefilling = [replica for replica in replicas if replica.role != DECODE]
    uneven = record.Imbalance(
        _imbalance([replica.requests for replica in prefilling]),
        _imbalance([replica.computed_tokens for replica in prefilling]),
    )
    if not (fleet.decode and isinstance(play.result, FleetResult)):
        return record.Fleet(replicas, uneven)
    link, trips = play.result.link, play.result.trips
    moved = [trip for trip in trips.values() if trip.arrived_ns >= 0]
    kv_link = record.KvLink(
        bytes_total=link.bytes,
        busy_s=link.busy_ns / NS_PER_S,
        requests=len(moved),
        moved_pages=sum(trip.pages for trip in moved),
        cached_pages=sum(trip.cached for trip in moved),
    )
    parts = [_trip_times(trip) for trip in moved]
    handoff_s = {
        name: spread(np.array([part[name] for part in parts], np.int64))
        for name in ("decode_wait", "link_wait", "link")
    }
    return record.Fleet(replicas, uneven, kv_link, handoff_s)


def _trip_times(trip: Trip) -> dict[str, int]:
    """Nanoseconds of the parts of a way from prefill to decode."""
    return {
        "decode_wait": trip.admitted_ns - trip.left_ns,
        "link_wait": trip.began_ns - trip.admitted_ns,
        "link": trip.arrived_ns - trip.began_ns,
    }


def _imbalance(amounts: Sequence[int]) -> float:
    """The largest over the mean; 1 if all are equal, or nothing was done."""
    total = sum(amounts)
    return max(amounts) * len(amounts) / total if total else 1.0


# -- load, limits and errors


def load_of(jobs: Jobs, latency: Latency, concurrency: int = 0) -> record.LoadFigures:
    """The load of the requests that were served. jobs: of the trace, at least these. concurrency: a
    fixed one, with which every request waits for another."""
    results = latency.requests
    timed = (jobs.afters < 0)[latency.numbers] & (not concurrency)
    columns = latency.arrivals_ns, latency.ttft_ns, latency.queue_ns
    arrivals, ttft, queue = (column[timed] for column in columns)
    queueing = int(latency.queue_ns.sum()) / (int(latency.ttft_ns.sum()) or 1)
    offered, waiting = 0.0, 0.0
    if len(arrivals) >= _LEAST_REQUESTS and (span_ns := int(np.ptp(arrivals))):
        offered = int((arrivals + ttft).max() - arrivals.min()) / span_ns
        waiting = float((11 * queue > 10 * ttft).mean())
    too_much = offered > MOST_LOAD or waiting > _MOST_WAITING
    changes = [(result.admit_ns, 1) for result in results]
    changes += [(result.finish_ns, -1) for result in results]
    running = accumulate(change for _, change in sorted(changes))
    return record.LoadFigures(
        offered=offered or None,
        queueing_share=queueing,
        overloaded=too_much and queueing > error_bars.MOST_QUEUEING,
        running_mean=error_bars.at_once(results, latency.makespan_ns),
        running_most=max(running, default=0),
    )


def _expected(play: Play, latency: Latency, queueing: float) -> record.ExpectedError:
    """The error to expect, from the judged runs that are nearest to this one."""
    settings = play.config
    validated = error_bars.Validated(
        times=plugins.spelled(registry.TIMES, settings.times),
        hardware=settings.hardware.name,
        engine=settings.engine.profile.name,
        model=settings.model.name,
        ranks=settings.parallelism.ranks,
        precision=error_bars.precision(settings.model.weight_dtype),
        load=error_bars.load(
            error_bars.at_once(latency.requests, latency.makespan_ns, play.fleet.members)
        ),
        queueing=queueing,
        stages=settings.parallelism.pp,
    )
    tables = map(error_bars.shipped, (error_bars.KNOWN, error_bars.NEW))
    return error_bars.expected_error(validated, *tables)


def goodput(slo: Slo, latency: Latency) -> record.Goodput:
    """The requests that keep all limits, and how many a second those are (docs/replay.md)."""
    each = kept(slo, latency)
    attained = np.ones(len(latency.requests), dtype=np.bool_)
    for array in each.values():
        attained &= array
    count, limits = int(attained.sum()), dict(slo.limits)
    tokens = int(np.maximum(latency.output_tokens, 1)[attained].sum())
    seconds = latency.makespan_ns / NS_PER_S
    return record.Goodput(
        **{f"{name}_s": limits[name] / NS_PER_S if name in limits else None for name in NAMES},
        attained_requests=count,
        attained_rate=count / len(attained) if len(attained) else 0.0,
        attained_error=_chance(latency, attained),
        goodput_requests_per_s=count / seconds if seconds else 0.0,
        goodput_tokens_per_s=tokens / seconds if seconds else 0.0,
        missed={name: int((~each[name]).sum()) if name in each else None for name in NAMES},
    )


def _chance(latency: Latency, attained: Kept) -> float | None:
    """How far the part of the requests that keep the limits may be from that of other traces of the
    same traffic, 19 times of 20: by how much it differs from one fifth, tenth or twentieth of the
    requests to the next, in the order of their arrivals (batch means; the largest counts, since
    queues last). If all are alike, by the rule of three."""
    count = len(attained)
    if count < max(_STUDENT) * _LEAST_REQUESTS:
        return None
    order = np.argsort(latency.arrivals_ns, kind="stable")
    errors = [_RULE_OF_THREE / count]
    for blocks, factor in _STUDENT.items():
        rates = [float(array.mean()) for array in np.array_split(attained[order], blocks)]
        errors.append(factor * float(np.std(rates, ddof=1)) / sqrt(blocks))
    return max(errors)


def charted(play: Play, result: Result, label: str = "") -> Result:
    """The result for a report: with the data of its chart, and a label, or its sizes as one."""
    config, latency, quantiles = play.config, play.latency, None
    host = config.core.host_pages[0] * config.page_bytes[0] * config.page_ranks
    sizes = f"host {host / 1e9:,.4g} GB, {config.core.write_policy}" if host else "no host memory"
    if latency is not None and len(latency.ttft_ns):
        at = np.linspace(0, 100, record.QUANTILES)
        points = np.percentile(latency.ttft_ns, at, method="inverted_cdf")
        quantiles = [float(f"{point / NS_PER_S:.6g}") for point in points]
    return replace(result, label=label or sizes, ttft_quantiles_s=quantiles)


# -- what limits, and what to try: options with which a replay runs, and whose effect is known


def limit_of(options: ReplayOptions, settings: ReplayConfig, paged: Paged, result: Result) -> Limit:
    """The first limit that applies."""
    full, load = result.total, result.load
    if not full.requests:
        return Limit("nothing_served", "no request was served")
    cached = _of_cache(settings, paged, result)
    queueing = load.queueing_share if load else 0.0
    share = f"{percent(queueing, 1)} of TTFT is queueing"
    if load and load.overloaded:
        if load.offered is None or load.offered <= MOST_LOAD:
            return Limit("load", f"queue long all the time, {share}")
        rate = settings.load.request_rate
        option = "--speed" if rate is None else "--request-rate"
        slow = slower(load.offered, settings.speed if rate is None else rate)
        why = f"offered {load.offered:.1f} x what the machine can do, {share}"
        return Limit("load", why, (f"{option} {slow}",))
    refused = sum(n for why, n in result.refused.items() if not why.startswith(_NO_LACK))
    if queueing > error_bars.MOST_QUEUEING and refused >= _MANY * full.requests:
        tries = (*_device_pool(options, settings), *cached.tries)[:_MOST_TRIES]
        return Limit("device_memory", f"{share}, {refused:,} x no pages", tries)
    return cached


def slower(offered: float, speed: Fraction) -> str:
    """The speed or rate at which the machine keeps up: one digit, rounded down."""
    wanted = float(speed) * _PART / offered
    places = -floor(log10(wanted))
    return f"{floor(wanted * 10**places) / 10**places:.{max(0, places)}f}"


def _of_cache(settings: ReplayConfig, paged: Paged, result: Result) -> Limit:
    """What limits the hits."""
    share, evicted, core = result.total, result.evicted_pages, settings.core
    exchange = core.exchange_pages[0] if core.exchange_pages else 0
    ratio = Fraction(core.host_pages[0] - exchange, core.device_pages[0])
    if not share.ceiling_tokens:
        return Limit("no_repeats", "no prompt shares a whole page with an earlier one")
    if share.lost_rate < _NEGLIGIBLE:
        idle = ratio and settings.storage is None and not evicted.device
        less = ["--host-ratio 0  # the same hits"] if idle else []
        return Limit("new_tokens", "what did not hit was new, more memory cannot help", less)
    lost = f"{share.lost_tokens:,} lost tokens"
    reason, tokens = next(iter(result.lost_by_reason.items()))
    mostly = 2 * tokens >= share.lost_tokens
    host = _more_host(settings, paged, result, ratio)
    if mostly and reason in core.components[1:]:
        use, is_state = result.components[reason], residency(reason) == "state"
        wanted = 2 * use.capacity.device * (1 if is_state else core.page_size)
        option = f"--{reason}-{'states' if is_state else 'tokens'} {wanted}"
        why = f"no {'state' if is_state else 'window'} of {reason} for {tokens:,} of {lost}"
        place = core.components.index(reason)
        pool = 2 * use.capacity.device * settings.rank_page_bytes[place]
        free_bytes = memory_of(settings.hardware) - settings.weight_bytes
        fits = use.evicted != Pair(0, 0) and 2 * pool <= free_bytes
        return Limit(reason, why, (option,) if fits else ())
    if mostly and reason == BETWEEN:
        why = f"{lost} lie behind the last state, one for {settings.pools.interval:,} tokens"
        return Limit(reason, why)
    if evicted == Pair(0, 0) and settings.fleet and settings.fleet.replicas > 1:
        apart = settings.fleet.router.name != _BY_PREFIX
        why = f"nothing was evicted: {lost} lie on other replicas, or were still being computed"
        return Limit("router", why, (f"--router {_BY_PREFIX.replace('_', '-')}",) if apart else ())
    if evicted == Pair(0, 0):
        return Limit("not_ready", f"{lost} were still being computed, nothing was evicted")
    return Limit("cache_memory", f"{lost} were evicted or not ready", host)


def _more_host(
    settings: ReplayConfig, paged: Paged, result: Result, ratio: Fraction
) -> tuple[str, ...]:
    """A host pool that holds every page of the trace; empty where it would be very large, or where
    nothing was evicted from the last tier. ratio: host pages for each device page."""
    if not (result.evicted_pages.host if ratio else result.evicted_pages.device):
        return ()
    chains = filter(len, map(paged.chain, paged.jobs))
    pages = 1 + max((int(chain.max()) for chain in chains), default=0)
    wanted = Fraction(pages, settings.core.device_pages[0])
    if not ratio < wanted <= _MOST_RATIO:
        return ()
    return (f"--host-ratio {ceil(100 * wanted) / 100:g}  # holds every page of the trace",)


def _device_pool(options: ReplayOptions, settings: ReplayConfig) -> tuple[str, ...]:
    """The option that gives requests more room on the device, where it can be used."""
    core, tp = settings.core, 2 * settings.parallelism.tp
    if options.device_tokens is None and options.device_pages is None:
        try:
            times.make(settings.times, settings.model, settings.hardware, Parallelism(tp))
        except CallerError:
            return ()
        return (f"--tp {tp}",)
    pools = zip(core.device_pages, settings.rank_page_bytes, strict=True)
    pool_bytes = sum(pages * size for pages, size in pools)
    if settings.weight_bytes + 2 * pool_bytes > memory_of(settings.hardware):
        return ()
    pages = 2 * core.device_pages[0]
    in_tokens = options.device_tokens is not None
    return (
        f"--device-tokens {pages * core.page_size}" if in_tokens else f"--device-pages {pages}",
    )


# -- one record for each request


def requests_of(play: Play, slo: Slo | None = None) -> Iterator[Request]:
    """One record for each request that was served, in a run that followed its pages."""
    latency, trace = play.latency, play.trace
    results = {} if latency is None else {request.request: request for request in latency.requests}
    missed: dict[int, list[str]] = {index: [] for index in results}
    if slo is not None and latency is not None:
        for name, array in kept(slo, latency).items():
            for index in latency.numbers[~array].tolist():
                missed[index].append(name)
    for row in play.account.rows():
        index = row["request"]
        miss, result = play.misses[index], results.get(index)
        yield Request(
            **row,
            line=trace.line_numbers[index],
            output_tokens=trace.jobs[index].output_length,
            hit_ended_by=miss.ended_by,
            last_seen_in_request=miss.last_seen if miss.last_seen >= 0 else None,
            **({} if result is None else _times(result)),
            slo_missed=missed[index] if slo is not None and index in missed else None,
            **({} if play.config.fleet is None else _way(play, index)),
        )


def _times(result: RequestResult) -> dict[str, Any]:
    gaps = result.output_length - 1
    after_first = result.finish_ns - result.first_token_ns
    return {
        "arrival_ns": result.arrival_ns,
        "queue_ns": result.queue_ns,
        "load_ns": result.load_ns,
        "compute_ns": result.compute_ns,
        "ttft_ns": result.first_token_ns - result.arrival_ns,
        "tpot_ns": after_first // gaps if gaps > 0 else None,
        "finish_ns": result.finish_ns,
        "refusals": result.refusals,
        "preemptions": result.retractions,
    }


def _way(play: Play, request: int) -> dict[str, Any]:
    """Where a request went, in a fleet. Its only token came from the prefill replica if there is no
    trip."""
    way: dict[str, Any] = {"replica": play.choices[request]}
    if not (play.fleet.decode and isinstance(play.result, FleetResult)):
        return way
    trip = play.result.trips.get(request)
    if trip is None:
        return {**way, "decode_replica": None}
    waits = {f"{name}_ns": time for name, time in _trip_times(trip).items()}
    return {**way, "decode_replica": trip.decode, **waits, "link_bytes": trip.bytes}
