"""Rows as samples: the passes of a replay, reduced to those that differ, and the work in each.

In a closed loop the composition of passes depends on lengths, concurrency and the engine's rules,
and little on durations. So with the defaults rows that only differ in accelerator, ranks or
precision share a replay, unless the pool of cached tokens is too small for all requests. Passes
that are nearly alike become one, with their weights added.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

import sim.engine_profiles as engine_profiles
from sim.engine_profiles import EngineProfile
from sim.fitted import Factor, known_model
from sim.physics import Kernel, family

from .loads import Load
from .parameters import Labels
from .passes import Passes, Smooth, record, roofline
from .rows import THROUGHPUT, Figure, Row, figures
from .server import Server, left_out, server_of, usable

Floats = NDArray[np.float64]
HOST = (
    *("step_host_ns", "step_gap_ns", "per_sequence_host_ns", "prefill_host_ns"),
    *("request_host_ns", "launch_ns"),
)
_ALIKE = 1.1  # passes whose tokens and sequences differ by less are one
_ALIKE_CONTEXT = 1.35
_NS = 1e-9


@dataclass(frozen=True)
class Target:
    """One published figure. measured: in seconds; a rate is turned into the run's seconds.

    weights   seconds of the figure for each second of each pass. rest: seconds that belong to no
              pass. requests: seconds of the figure for each second of the request's own host time.
    """

    what: str
    measured: float
    weights: Floats
    rest: float
    requests: float


@dataclass(frozen=True)
class Sample:
    """One row. Columns have one entry a pass; `work` has one row for each kind of kernel in each
    pass: pass, number of the kind, launches, compute_ns, moved_ns, and 1 inside the layers. starts:
    kernels that the host launches one by one in a pass, which then takes at least so long."""

    row: str
    group: str
    labels: Labels
    kinds: tuple[str, ...]
    kernels: Mapping[str, Kernel]
    work: Floats
    sequences: Floats
    prompts: Floats
    starts: Floats
    host: Mapping[str, int]
    overlap: bool
    device: float
    figures: tuple[Target, ...]


@dataclass(frozen=True)
class _Log:
    """A recorded replay, with the engine that ran it."""

    passes: Passes
    engine: EngineProfile


Ready = tuple[Row, Server, Load]


def recorded(rows: Iterable[Row], given: tuple[Factor, ...], jobs: int) -> list[Sample]:
    """The samples of the rows that can be replayed and have a figure that passes explain, by id,
    from replays with these factors. With some each row has a replay of its own, since its requests
    may come in other bunches. jobs: processes."""
    shared: dict[Hashable, list[Row]] = {}
    for row, server, load in _prepared(rows, given):
        if _explained(row, load):
            shared.setdefault(row.id if given else _key(server, load), []).append(row)
    with ProcessPoolExecutor(jobs) as pool:
        found = [
            one for each in pool.map(partial(samples_of, given), shared.values()) for one in each
        ]
    return sorted(found, key=lambda one: one.row)


def samples_of(given: tuple[Factor, ...], rows: Sequence[Row]) -> list[Sample]:
    """Of rows that share a replay. given: the factors that it is run with."""
    ready = list(_prepared(rows, given))
    _, server, load = ready[0]
    log = _Log(record(server, load, Smooth(roofline(server, given)))[1], server.engine)
    return [_sample(row, server, load, log) for row, server, load in ready]


def _prepared(rows: Iterable[Row], given: tuple[Factor, ...]) -> Iterator[Ready]:
    """The rows that can be replayed, with their servers and requests."""
    for row in rows:
        load = usable(row)
        if load is not None:
            yield row, server_of(row, load.concurrency, given), load


def _explained(row: Row, load: Load) -> list[Figure]:
    return [figure for figure in figures(row) if not left_out(row, load, figure)]


def _key(server: Server, load: Load) -> Hashable:
    """What the composition of passes depends on."""
    profile = server.engine
    pool = server.tokens_in_pool(load.mean_length)
    roomy = load.concurrency * load.longest <= pool
    return (
        load,
        server.token_budget,
        server.max_running,
        server.flags,
        profile.batching,
        profile.chunked,
        profile.lookahead,
        profile.request_host_ns,
        server.parallelism.attention_dp,
        -1 if roomy else pool,
    )


def _sample(row: Row, server: Server, load: Load, log: _Log) -> Sample:
    profile = server.engine
    generation = family(server.hardware)
    model = roofline(server, ())
    cluster, count = _clusters(log.passes)
    columns = _means(log.passes, cluster, count)
    kinds: dict[str, int] = {}
    work, starts = [], []
    for number in range(count):
        passed = _pass(*(column[number] for column in columns))
        for inside, works in zip((1, 0), model.works(*passed), strict=True):
            for each in works:
                kind = kinds.setdefault(each.kind, len(kinds))
                amounts = each.launches, each.compute_ns, each.moved_ns, inside
                work.append((number, kind, *amounts))
        starts.append(model.starts(*passed))
    constants = model.constants.kernels
    before = engine_profiles.get(profile.label)
    host = {name: getattr(before, name) for name in HOST}
    return Sample(
        row.id,
        row.group,
        Labels(
            generation,
            server.hardware.name,
            profile.name,
            profile.label,
            known_model(server.model.name),
        ),
        tuple(kinds),
        {kind: constants[kind] for kind in kinds},
        np.array(work, dtype=np.float64),
        columns[5] + columns[0],
        columns[0],
        np.array(starts, dtype=np.float64),
        host,
        profile.overlap,
        profile.device_permille / 1000,
        tuple(_target(one, log, load, cluster, count) for one in _explained(row, load)),
    )


def _target(
    figure: Figure, log: _Log, load: Load, cluster: NDArray[np.int64], count: int
) -> Target:
    what = "makespan" if figure.quantity == THROUGHPUT else figure.what
    measured = figure.value
    if what == "makespan":
        measured = _amount(figure.what, load) / figure.value
    each: Floats = getattr(log.passes, what)
    rest = log.passes.idle_s[what]
    if what == "ttft":
        # the time of the host before a pass is in the weights; what is fitted is how it changes
        rest += log.passes.before_s - log.engine.request_host_ns * _NS
    weights: Floats = np.bincount(cluster, each, count).astype(np.float64)
    return Target(figure.quantity, measured, weights, rest, what == "ttft")


def _amount(what: str, load: Load) -> int:
    """What a rate counts, in the whole run."""
    given = sum(job.input_length for job in load.jobs)
    generated = sum(job.output_length for job in load.jobs)
    return {
        "output_tok_s": generated,
        "input_tok_s": given,
        "total_tok_s": given + generated,
        "req_s": len(load.jobs),
    }[what]


def _clusters(log: Passes) -> tuple[NDArray[np.int64], int]:
    """For each pass, the number of the passes that it is nearly like."""
    columns = [
        _steps(log.tokens, _ALIKE),
        _steps(log.decoding, _ALIKE),
        _steps(log.context, _ALIKE_CONTEXT),
        _steps(log.pairs, _ALIKE_CONTEXT),
        log.chunks,
    ]
    _, cluster = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    flat = cluster.reshape(-1).astype(np.int64)
    return flat, int(flat.max()) + 1


def _steps(values: NDArray[np.int64], ratio: float) -> NDArray[np.int64]:
    """Numbers of geometric intervals; -1 for 0."""
    logs = np.log(np.maximum(values, 1)) / np.log(ratio)
    return np.where(values > 0, np.round(logs), -1).astype(np.int64)


def _means(log: Passes, cluster: NDArray[np.int64], count: int) -> list[Floats]:
    """Chunks, tokens, pairs, reads, decoding and context of a cluster, by time."""
    weight = log.took_ns.astype(np.float64)
    total = np.bincount(cluster, weight, count)
    names = ("chunks", "tokens", "pairs", "reads", "decoding", "context")
    ordered = [getattr(log, name) for name in names]
    chunks, tokens, pairs, reads, decoding, context = (
        np.bincount(cluster, weight * column, count) / total for column in ordered
    )
    return [chunks, tokens, pairs, reads, context, decoding]


def _pass(
    chunks: float, tokens: float, pairs: float, reads: float, context: float, decoding: float
) -> tuple[list[tuple[int, int]], int, int]:
    """A pass with these figures, of equal chunks."""
    number = round(chunks)
    sequences = round(decoding)
    found = []
    if number:
        length = max(1, round(tokens / number))
        start = max(0, round(pairs / number / length - (length + 1) / 2))
        found = [(start, start + length)] * number
    return found, sequences, max(sequences, round(context * sequences / max(decoding, 1e-9)))
