"""Predicts every figure of one row: the job of a worker process.

A row is replayed as its family is, once for each phase that its source ran apart. Does not read
files of rows, choose rows or judge errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hicache.core.errors import CallerError
from sim.fitted.factors import Factor

from ..expected.table import at_once, queueing
from .choosing import group, half
from .figures import E2E, HITS, TTFT, Figure, figures_of
from .rows import Row
from .rules import figure_rule, row_rule
from .running import Replayed, predicted, replay
from .setup import Setup, limits_of, setup_of
from .single import (
    COPIES,
    KERNEL_TIMES,
    KERNELS,
    copy_figures,
    is_copy,
    is_kernel,
    is_line,
    is_trace,
    kernel_figures,
    line_figures,
    trace_figures,
)
from .workloads import Load, alone, load_of

KINDS = (
    "prefill",
    "decode",
    "closed loop",
    "open loop",
    "saturation",
    "prefix hits",
    "offload",
    "copies",
    "kernels",
)
_BATCH = "decode-bs8"
_DECODED = 128  # tokens over which a point of a line is measured
_OF_KIND = {
    "serving-closed-loop": "closed loop",
    "throughput-saturation": "saturation",
    "prefill-bs1 + decode-bs1 + throughput": "saturation",
    "serving-open-loop": "open loop",
    "prefix-cache": "prefix hits",
    "host offload": "offload",
    COPIES: "copies",
    KERNELS: "kernels",
}


@dataclass(frozen=True, slots=True)
class Compared:
    """One published figure beside its prediction, in seconds, per second, or a part of 1.

    rule: why it is not judged; "" if it is.
    """

    name: str
    quantity: str
    kind: str
    statistic: str
    published: float
    predicted: float
    rule: str = ""

    @property
    def error(self) -> float:
        """Signed: predicted / published - 1; for hit rates the difference."""
        if self.quantity == HITS:
            return self.predicted - self.published
        return self.predicted / self.published - 1 if self.published else 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a row. left_out: the id of a rule; "" for a row that was predicted. why: of a
    server that cannot be built. ranks, precision, at_once, queueing: what expected errors depend
    on. limits: one of `LIMITS`."""

    id: str
    times: str
    half: str
    group: str
    grade: str
    hardware: str
    model: str
    engine: str
    version: str
    published_kind: str
    left_out: str = ""
    why: str = ""
    profile: str = ""
    label: str = ""
    gpus: int = 0
    ranks: int = 0
    precision: str = ""
    at_once: float = 0.0
    queueing: float = 0.0
    limits: str = ""
    assumed: tuple[str, ...] = ()
    figures: tuple[Compared, ...] = field(default=())

    def document(self) -> dict[str, Any]:
        """For JSON, with the errors."""
        found = asdict(self)
        found["assumed"] = list(self.assumed)
        found["figures"] = [asdict(one) | {"error": one.error} for one in self.figures]
        return found

    @classmethod
    def of(cls, document: dict[str, Any]) -> Outcome:
        """The outcome of a document. Raises KeyError or TypeError for another one."""
        given = dict(document)
        figures = [
            Compared(**{name: value for name, value in one.items() if name != "error"})
            for one in given.pop("figures")
        ]
        return cls(**{**given, "assumed": tuple(given["assumed"]), "figures": tuple(figures)})


@dataclass(frozen=True, slots=True)
class Task:
    """A row and the time model that predicts it. factors: on the constants of the roofline and of
    the engine; None for those of this project."""

    row: Row
    times: str
    factors: tuple[Factor, ...] | None = None


def predict(task: Task) -> Outcome:
    """The outcome of a row."""
    row = task.row
    found = Outcome(
        id=row.id,
        times=task.times,
        half=half(row),
        group=group(row),
        grade=row.grade,
        hardware=row.hardware,
        model=row.model,
        engine=row.engine,
        version=row.engine_version,
        published_kind=row.kind,
        gpus=row.gpu_count,
        assumed=row.assume,
    )
    rule = row_rule(row)
    if rule:
        return replace(found, left_out=rule)
    if is_copy(row):
        return replace(found, figures=_compared(row, copy_figures(row)))
    if is_trace(row):
        return replace(found, figures=_compared(row, trace_figures(row)))
    if is_kernel(row):
        if task.times != KERNEL_TIMES:
            return replace(found, left_out="no-times")
        return replace(found, figures=_compared(row, kernel_figures(row, task.factors)))
    return _served(task, found)


def _served(task: Task, found: Outcome) -> Outcome:
    """A row that a server answered."""
    row = task.row
    load = load_of(row) or alone(1024, _DECODED)
    try:
        setup = setup_of(row, load.concurrency, task.factors)
    except CallerError as error:
        return replace(found, left_out="no-place", why=str(error))
    try:
        replays = _Replays(setup, load, task)
        figures = _compared(row, _figures(row, replays))
    except CallerError as error:
        return replace(found, left_out="no-times", why=str(error))
    return replace(
        found,
        profile=setup.engine.label,
        label=replays.label,
        ranks=setup.parallelism.ranks,
        precision=setup.model.weight_dtype,
        at_once=replays.at_once,
        queueing=replays.queueing,
        limits=limits_of(row, load.concurrency),
        assumed=(*found.assumed, *setup.assumed, *load.assumed),
        figures=figures,
    )


class _Replays:
    """The replays of one row, each run when a figure first needs it."""

    def __init__(self, setup: Setup, load: Load, task: Task) -> None:
        self.setup, self.load, self._task = setup, load, task
        self.label, self.at_once, self.queueing = "", 0.0, 0.0
        self._whole: Replayed | None = None

    def whole(self) -> Replayed:
        if self._whole is None:
            self._whole = self.of(self.load)
            result = self._whole.result
            self.at_once = at_once(result.requests, result.makespan_ns)
            self.queueing = queueing(result.requests)
        return self._whole

    def of(self, load: Load) -> Replayed:
        found = replay(self.setup, load, self._task.times, self._task.factors)
        self.label = found.label
        return found


def _figures(row: Row, replays: _Replays) -> Iterator[tuple[Figure, float | None]]:
    if is_line(row):
        for figure, context in line_figures(row):
            load = alone(max(1, context - _DECODED // 2), _DECODED)
            yield figure, predicted(replays.of(load), figure)
        return
    for figure in figures_of(row):
        if figure.phase == "bs1":
            first = replays.load.jobs[0]
            load = alone(first.input_length, first.output_length)
            yield figure, predicted(replays.of(load), replace(figure, phase=""))
        elif row.kind.startswith(_BATCH) and figure.what == "itl":
            # the source divides the time of the batch by its output tokens
            mean = predicted(replays.whole(), replace(figure, what=E2E))
            yield figure, mean and mean / replays.load.jobs[0].output_length
        else:
            yield figure, predicted(replays.whole(), figure)
    yield from _rounds(row, replays)


def _rounds(row: Row, replays: _Replays) -> Iterator[tuple[Figure, float | None]]:
    """Hit rates by round. Those are judged in which the pool holds everything so far."""
    rates = row.metrics.get("hit_rate_by_round")
    if not isinstance(rates, list):
        return
    load, found = replays.load, replays.whole().hits
    held = load.pool_tokens or replays.setup.tokens_in_pool(load.mean_length)
    clients = load.turns.count(0)
    for turn, rate in enumerate(rates):
        longest = load.jobs[turn * clients]
        fits = clients * (longest.input_length + longest.output_length) <= held
        yield Figure(f"hit_rate_round_{turn}", HITS, "hits", "", rate, judged=fits), found[turn]


def _compared(
    row: Row, pairs: Iterator[tuple[Figure, float | None]] | list[tuple[Figure, float]]
) -> tuple[Compared, ...]:
    found = []
    for figure, value in pairs:
        if value is None or (not figure.value and figure.quantity != HITS):
            continue
        rule = figure_rule(row, figure)
        kind = kind_of(row, figure)
        found.append(
            Compared(
                figure.name,
                figure.quantity,
                kind,
                figure.statistic,
                figure.value,
                float(value),
                rule,
            )
        )
    return tuple(found)


def kind_of(row: Row, figure: Figure) -> str:
    """Which of `KINDS` a figure belongs to."""
    alone_ = figure.phase == "bs1" or row.kind.startswith(("prefill-bs1", "decode-bs", _BATCH))
    if alone_ and (figure.phase == "bs1" or "throughput" not in row.kind):
        return "prefill" if figure.quantity == TTFT else "decode"
    return next(kind for begin, kind in _OF_KIND.items() if row.kind.startswith(begin))
