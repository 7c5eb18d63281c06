"""Reads published measurements: one JSON object a line, each with an id, a grade and figures.

A row with a missing, wrong or contradictory field raises an error of one line that names its id,
file and line. Fields that nobody here knows are ignored. What a row lacks for a replay is no error:
the rules of `leaving_out` decide about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hicache.core.errors import CallerError
from hicache.files import (
    FLAG,
    TEXT,
    Maybe,
    Named,
    Spare,
    Value,
    fit,
    number,
    parsed,
    show,
    unlike,
    whole,
    word,
)

from . import names

FILE = "measurements.jsonl"
GRADES = ("A", "B", "C")
_MOST_LINE_BYTES = 1 << 20
_MOST_ROWS = 200_000
_COUNTS = ("gpu_count", "tp", "pp", "ep", "dp_attention")
_TEXTS = (
    "gpu",
    "engine",
    "engine_version",
    "model",
    "hicache_model",
    "hicache_hardware",
    "weights",
    "kv_dtype",
    "note",
    "date",
    "quote",
)
_FLAGS = ("prefix_cache", "host_offload")
_LARGEST = 1e15  # of a figure
_LENGTHS = ("isl", "osl")  # or words, such as "256 to 125k swept"
_MOST_TOKENS = 10_000_000
_NUMBERS = (
    *("concurrency", "concurrency_per_replica", "client_concurrency", "num_prompts"),
    *("clients", "rounds", "isl_max", "osl_max", "max_output"),
)
_MOST = 1_000_000
_MOST_LIMIT = 1_000_000_000
_MOST_RATE, _MOST_TOTAL = 1e4, 1e12
_SHARED = ("prefixes", "users", "question", "output", "system")
_PARTS = ("gpu_memory_utilization", "mem_fraction_static", "kv_fraction")
_CAPS = (
    *("max_num_batched_tokens", "max_num_tokens", "chunked_prefill_size", "kv_blocks_of_16"),
    *("max_total_tokens", "max_num_seqs", "max_batch_size", "max_batch", "max_running_requests"),
)
_MEND = "mend the row"


def _or_text(shape: Value) -> Maybe:
    """A value, a text (in which it is searched, or which says how it varies), or nothing."""
    return Maybe(Value(shape.says, lambda value: isinstance(value, str) or shape.fits(value)))


def _above_0(most: float, listed: bool = False) -> Maybe:
    """A number above 0, or null; listed: or a list of these."""

    def fits(value: Any) -> bool:
        each = value if isinstance(value, list) and listed else [value]
        return all(one is None or (one != 0 and bounded.fits(one)) for one in each)

    bounded = number(0, most)
    return Maybe(Value(f"a number above 0 and at most {most:g}", fits))


_FIGURE = number(0, _LARGEST)
_WORD = Value("a text", lambda value: isinstance(value, str) and value != "")
_SHAPE = {
    "id": _WORD,
    "grade": word(*GRADES),
    "kind": _WORD,
    **dict.fromkeys(_TEXTS, Maybe(TEXT)),
    **dict.fromkeys(_COUNTS, Maybe(whole(1))),
    **dict.fromkeys(_FLAGS, Maybe(FLAG)),
    "workload": Spare(
        {
            **dict.fromkeys(_LENGTHS, _or_text(whole(1, _MOST_TOKENS))),
            **dict.fromkeys(_NUMBERS, Maybe(whole(1, _MOST))),
            "rate": _above_0(_MOST_RATE, listed=True),
            **dict.fromkeys(("total_input", "total_output"), _above_0(_MOST_TOTAL)),
            "shared_prefix": Maybe(
                {
                    **dict.fromkeys(_SHARED, whole(1, _MOST)),
                    "seconds": Maybe(whole(1, _MOST)),
                }
            ),
        }
    ),
    "limits": Spare(
        {
            **dict.fromkeys(_CAPS, _or_text(whole(1, _MOST_LIMIT))),
            **{name: _or_text(_above_0(1).shape) for name in _PARTS},
        }
    ),
    # A figure, or a list of them.
    "metrics": Named(
        Value(
            _FIGURE.says,
            lambda value: all(map(_FIGURE.fits, value if isinstance(value, list) else [value])),
        )
    ),
    **dict.fromkeys(("missing", "assume"), Maybe([TEXT])),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One published measurement. Names are normalised; 0, "" and None mean that nothing is said.

    hardware    the accelerator's name (see names): `hicache_hardware`, else from `gpu`.
    model       `hicache_model`, else from `model`.
    gpu, published_model, published_engine   as the source writes them.
    where       file and line.
    """

    id: str
    grade: str
    kind: str
    hardware: str
    model: str
    engine: str
    engine_version: str
    gpu: str
    published_model: str
    published_engine: str
    gpu_count: int
    tp: int
    pp: int
    ep: int
    dp_attention: int
    weights: str
    kv_dtype: str
    prefix_cache: bool | None
    host_offload: bool | None
    workload: Mapping[str, Any]
    limits: Mapping[str, Any]
    metrics: Mapping[str, Any]
    missing: tuple[str, ...]
    assume: tuple[str, ...]
    note: str
    date: str
    quote: str
    where: str

    @property
    def accelerator(self) -> str:
        """The name that follows from `gpu` alone; `hardware` where the source does not say."""
        return names.gpu(self.gpu) if self.gpu else self.hardware


def read(path: Path) -> list[Row]:
    """All rows of a file, or of the measurements in a folder. Raises CallerError."""
    file = path / FILE if path.is_dir() else path
    found: list[Row] = []
    lines: dict[str, str] = {}
    try:
        with open(file, "rb") as stream:
            for number, line in _lines(stream, file):
                row = _row(line, f"{file}:{number}")
                if row.id in lines:
                    label = f"{row.where}, row {row.id}"
                    raise unlike(f"{label}: id", "one row", f"also {lines[row.id]}", _MEND)
                lines[row.id] = row.where
                found.append(row)
    except OSError as error:
        raise CallerError(
            f"{file}: expected published measurements, found: {error.strerror}; "
            "name their folder with --data"
        ) from None
    if not found:
        raise CallerError(f"{file}: expected published measurements, found no row")
    return found


def _lines(stream: IO[bytes], file: Path) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := stream.readline(_MOST_LINE_BYTES + 1):
        number += 1
        if len(line) > _MOST_LINE_BYTES:
            raise CallerError(
                f"{file}:{number}: expected a row of at most {_MOST_LINE_BYTES} bytes, found more; "
                "write one JSON object a line"
            )
        if number > _MOST_ROWS:
            raise CallerError(
                f"{file}: expected at most {_MOST_ROWS} rows, found more; divide the file"
            )
        if line.strip():
            yield number, line


def _row(line: bytes, where: str) -> Row:
    """The row of a line. Raises CallerError."""
    try:
        given = parsed(line)
    except ValueError as error:
        raise CallerError(
            f"{where}: expected one JSON object, found: {error}; mend the line"
        ) from None
    if not isinstance(given, dict):
        raise CallerError(f"{where}: expected one JSON object, found {show(given)}; mend the line")
    label = f"{where}, row {given['id']}" if isinstance(given.get("id"), str) else where
    fit(given, _SHAPE, label, _MEND)
    if not given["metrics"]:
        raise unlike(f"{label}: metrics", "at least one figure", "none", _MEND)
    _check_agreement(given, label)
    return _made(given, where)


def _made(given: dict[str, Any], where: str) -> Row:
    def text(name: str) -> str:
        return given.get(name) or ""

    def count(name: str) -> int:
        return given.get(name) or 0

    return Row(
        id=given["id"],
        grade=given["grade"],
        kind=given["kind"],
        hardware=text("hicache_hardware") or names.gpu(text("gpu")),
        model=text("hicache_model") or names.model(text("model")),
        engine=names.engine(text("engine")),
        engine_version=text("engine_version"),
        gpu=text("gpu"),
        published_model=text("model"),
        published_engine=text("engine"),
        gpu_count=count("gpu_count"),
        tp=count("tp"),
        pp=count("pp") or 1,
        ep=count("ep"),
        dp_attention=count("dp_attention"),
        weights=names.precision(text("weights")),
        kv_dtype=names.precision(text("kv_dtype")),
        prefix_cache=given.get("prefix_cache"),
        host_offload=given.get("host_offload"),
        workload=given.get("workload", {}),
        limits=given.get("limits", {}),
        metrics=given["metrics"],
        missing=tuple(given.get("missing") or ()),
        assume=tuple(given.get("assume") or ()),
        note=text("note"),
        date=text("date"),
        quote=text("quote"),
        where=where,
    )


def _check_agreement(given: dict[str, Any], label: str) -> None:
    """Fields that contradict each other: more ranks than GPUs, shortest above longest."""
    gpus, ranks = given.get("gpu_count"), (given.get("tp") or 1) * (given.get("pp") or 1)
    if gpus is not None and ranks > gpus:
        raise unlike(
            f"{label}: tp",
            f"at most the {gpus} GPUs of gpu_count",
            f"{ranks} ranks (tp x pp)",
            _MEND,
        )
    attention = given.get("dp_attention") or 1
    if gpus is not None and attention > gpus:
        raise unlike(
            f"{label}: dp_attention", f"at most the {gpus} GPUs of gpu_count", str(attention), _MEND
        )
    metrics = given["metrics"]
    for low, high in (("median", "p99"), ("p50", "p90"), ("p90", "p99"), ("ttft", "e2e")):
        for name, value in metrics.items():
            other = metrics.get(name.replace(low, high)) if low in name else None
            if isinstance(value, int | float) and isinstance(other, int | float) and value > other:
                wanted = f"at most {name.replace(low, high)}"
                raise unlike(f"{label}: metrics.{name}", wanted, show(value), _MEND)
