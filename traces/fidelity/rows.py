"""Reads published measurements: one JSON object a line, each with an id, a grade and figures.

A row with a missing, wrong or contradictory field raises an error of one line that names its id,
file and line. Fields that nobody here knows are ignored. What a row lacks for a replay is no error:
the rules of `leaving_out` decide about it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

from hicache.core.errors import CallerError
from hicache.files import once, show

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
_RECORDS = ("workload", "limits", "metrics")
_LARGEST = 1e15  # of a figure
_LENGTHS = ("isl", "osl")  # or words, such as "256 to 125k swept"
_MOST_TOKENS = 10_000_000
_NUMBERS = (
    *("concurrency", "concurrency_per_replica", "client_concurrency", "num_prompts"),
    *("clients", "rounds", "isl_max", "osl_max", "max_output"),
)
_MOST = 1_000_000
_MOST_LIMIT = 1_000_000_000
_RATES = {"rate": 1e4, "total_input": 1e12, "total_output": 1e12}
_SHARED = ("prefixes", "users", "question", "output", "system")
_PARTS = ("gpu_memory_utilization", "mem_fraction_static", "kv_fraction")
_CAPS = (
    *("max_num_batched_tokens", "max_num_tokens", "chunked_prefill_size", "kv_blocks_of_16"),
    *("max_total_tokens", "max_num_seqs", "max_batch_size", "max_batch", "max_running_requests"),
)


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
                    _wrong(f"{row.where}, row {row.id}", "id", "one row", f"also {lines[row.id]}")
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
        given = json.loads(line, object_pairs_hook=once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        text = str(error) or "nested too deeply"
        raise CallerError(
            f"{where}: expected one JSON object, found: {text}; mend the line"
        ) from None
    if not isinstance(given, dict):
        raise CallerError(f"{where}: expected one JSON object, found {show(given)}; mend the line")
    label = f"{where}, row {given['id']}" if isinstance(given.get("id"), str) else where
    for name in ("id", "grade", "kind"):
        if not isinstance(given.get(name), str) or not given[name]:
            _wrong(label, name, "a text", _found(given, name))
    if given["grade"] not in GRADES:
        _wrong(label, "grade", "A, B or C", show(given["grade"]))
    for name in _TEXTS:
        if not isinstance(given.get(name) or "", str):
            _wrong(label, name, "a text", _found(given, name))
    for name in _COUNTS:
        _check_count(given, name, label)
    for name in _FLAGS:
        if not isinstance(given.get(name), bool | None):
            _wrong(label, name, "true or false", _found(given, name))
    for name in _RECORDS:
        if not isinstance(given.get(name, {} if name != "metrics" else None), dict):
            _wrong(label, name, "an object", _found(given, name))
    if not given["metrics"]:
        _wrong(label, "metrics", "at least one figure", "none")
    _check_figures(given["metrics"], label, "metrics.")
    _check_workload(given.get("workload", {}), label)
    _check_limits(given.get("limits", {}), label)
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
        missing=_texts(given, "missing", where),
        assume=_texts(given, "assume", where),
        note=text("note"),
        date=text("date"),
        quote=text("quote"),
        where=where,
    )


def _check_count(given: dict[str, Any], name: str, label: str) -> None:
    value = given.get(name)
    if value is not None and (type(value) is not int or value < 1):
        _wrong(label, name, "an integer of at least 1", show(value))


def _check_figures(figures: Mapping[str, Any], label: str, prefix: str) -> None:
    """Figures are numbers that are not negative, or lists of them."""
    for name, value in figures.items():
        for each in value if isinstance(value, list) else [value]:
            if not _is_number(each) or not 0 <= each <= _LARGEST:
                _wrong(
                    label,
                    prefix + name,
                    f"a number of at least 0 and at most {_LARGEST:g}",
                    show(value),
                )


def _check_workload(given: Mapping[str, Any], label: str) -> None:
    """What requests are made of: whole numbers of a size that can be replayed, and rates."""
    for names_, most in ((_LENGTHS, _MOST_TOKENS), (_NUMBERS, _MOST)):
        for name in names_:
            value = given.get(name)
            if value is not None and not (name in _LENGTHS and isinstance(value, str)):
                _check_whole(value, most, label, f"workload.{name}")
    for name, largest in _RATES.items():
        value = given.get(name)
        for each in value if isinstance(value, list) and name == "rate" else [value]:
            if each is not None and not (_is_number(each) and 0 < each <= largest):
                expected = f"a number above 0 and at most {largest:g}"
                _wrong(label, f"workload.{name}", expected, show(value))
    shared = given.get("shared_prefix")
    if shared is None:
        return
    if not isinstance(shared, dict):
        _wrong(label, "workload.shared_prefix", "an object", show(shared))
    for name in _SHARED:
        _check_whole(shared.get(name), _MOST, label, f"workload.shared_prefix.{name}")


def _check_limits(given: Mapping[str, Any], label: str) -> None:
    """Limits are numbers, or texts in which one is searched."""
    for name in _CAPS:
        value = given.get(name)
        if value is not None and not isinstance(value, str):
            _check_whole(value, _MOST_LIMIT, label, f"limits.{name}")
    for name in _PARTS:
        value = given.get(name)
        if value is None or isinstance(value, str):
            continue
        if not _is_number(value) or not 0 < value <= 1:
            _wrong(label, f"limits.{name}", "a number above 0 and at most 1", show(value))


def _check_whole(value: object, most: int, label: str, field: str) -> None:
    if type(value) is not int or not 1 <= value <= most:
        _wrong(label, field, f"an integer from 1 to {most}", show(value))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_agreement(given: dict[str, Any], label: str) -> None:
    """Fields that contradict each other: more ranks than GPUs, shortest above longest."""
    gpus, ranks = given.get("gpu_count"), (given.get("tp") or 1) * (given.get("pp") or 1)
    if gpus is not None and ranks > gpus:
        _wrong(label, "tp", f"at most the {gpus} GPUs of gpu_count", f"{ranks} ranks (tp x pp)")
    attention = given.get("dp_attention") or 1
    if gpus is not None and attention > gpus:
        _wrong(label, "dp_attention", f"at most the {gpus} GPUs of gpu_count", str(attention))
    metrics = given["metrics"]
    for low, high in (("median", "p99"), ("p50", "p90"), ("p90", "p99"), ("ttft", "e2e")):
        for name, value in metrics.items():
            other = metrics.get(name.replace(low, high)) if low in name else None
            if isinstance(value, int | float) and isinstance(other, int | float) and value > other:
                _wrong(label, f"metrics.{name}", f"at most {name.replace(low, high)}", show(value))


def _texts(given: dict[str, Any], name: str, where: str) -> tuple[str, ...]:
    value = given.get(name) or []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        _wrong(f"{where}, row {given['id']}", name, "a list of texts", show(value))
    return tuple(value)


def _found(given: dict[str, Any], name: str) -> str:
    return show(given[name]) if name in given else "nothing"


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"the number {text}")


def _wrong(label: str, field: str, expected: str, found: str) -> NoReturn:
    raise CallerError(f"{label}: {field}: expected {expected}, found {found}; mend the row")
