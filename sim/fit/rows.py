"""Published measurements: one JSON object a line. Reads those that constants are fitted to, with
one name for what sources call differently, and the figures of each that passes explain."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hicache.core.errors import CallerError

FILE = "measurements.jsonl"
TTFT, TPOT, THROUGHPUT = "ttft", "tpot", "throughput"
_KINDS = ("serving-closed-loop", "throughput-saturation", "prefill-bs1", "decode-bs1", "decode-bs8")
_MOST_LINE_BYTES = 1 << 20
_NEEDED = {"id": str, "grade": str, "kind": str, "metrics": dict}
# The first pattern that is found in the simplified text decides.
_GPUS = (
    *((rf"{name}", name) for name in ("gb300", "gb200", "gh200", "b300", "b200", "h200")),
    *((r"h100.*pcie", "h100_pcie"), (r"h100.*nvl", "h100_nvl"), (r"h100", "h100")),
    *((r"h800", "h800"), (r"h20\b.*3e|h20.*141", "h20_3e"), (r"h20\b", "h20")),
    *((r"a100.*40 ?gb?", "a100_40gb"), (r"a100", "a100"), (r"l40s", "l40s")),
    *((r"rtx pro 6000", "rtx_pro_6000"), (r"4090", "rtx_4090")),
)
_ENGINES = (
    (r"\bone of\b|\binternal\b|\bno engine\b|\btrace\b", "none"),
    *((r"\bvllm\b", "vllm"), (r"\bsglang\b", "sglang")),
    (r"\btrt ?llm\b|\btensorrt ?llm\b", "trtllm"),
)
_PRECISIONS = (
    *((name, name) for name in ("mxfp4", "nvfp4", "fp4")),
    *((r"fp8|e4m3", "fp8"), (r"int4|awq|gptq", "int4"), (r"bf16|bfloat16|fp16|float16", "bf16")),
)
# Of each quantity one figure of a row counts: the first of these that it has.
_ORDER = (
    *(("ttft", "mean"), ("ttft", "median")),
    *(("tpot", "mean"), ("itl", "mean"), ("tpot", "median"), ("itl", "median")),
    *(("output_tok_s", ""), ("total_tok_s", ""), ("input_tok_s", ""), ("req_s", "")),
)
_RATES = re.compile(r"(output_tok_s|total_tok_s|input_tok_s|req_s)(_per_gpu)?")
_TIMES = re.compile(r"(?:.*_)?(ttft|tpot|itl)(?:_|$).*")
_STATISTICS = ("mean", "median", "p50", "p90", "p95", "p99")
_PHASES = {"cold", "warm", "bs1"}  # parts of a run, or runs of their own


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. 0 and "" mean that nothing is said.

    hardware      the accelerator's name, as the row proposes it. accelerator: by what its source
                  calls it.
    workload, limits, metrics   as the source has them.
    """

    id: str
    kind: str
    hardware: str
    accelerator: str
    model: str
    engine: str
    engine_version: str
    gpu_count: int
    tp: int
    pp: int
    ep: int
    dp_attention: int
    weights: str
    kv_dtype: str
    workload: Mapping[str, Any]
    limits: Mapping[str, Any]
    metrics: Mapping[str, Any]
    assume: tuple[str, ...]
    note: str
    date: str

    @property
    def group(self) -> str:
        """Accelerator, model and engine, such as "h100|llama-3.1-8b|vllm"."""
        return f"{self.hardware}|{self.model}|{self.engine}"


@dataclass(frozen=True, slots=True)
class Figure:
    """what: ttft, tpot, itl, output_tok_s, ... quantity: the same for tpot and itl, and for all
    rates. value: a mean in seconds, or a rate per second."""

    what: str
    quantity: str
    value: float


def read(paths: Iterable[Path]) -> list[Row]:
    """The rows of grades A and B with times of whole passes, by id. paths: files, or folders with
    measurements.jsonl. Raises CallerError."""
    found: dict[str, Row] = {}
    for path in paths:
        file = path / FILE if path.is_dir() else path
        try:
            with open(file, "rb") as stream:
                number = 0
                while line := stream.readline(_MOST_LINE_BYTES):
                    number += 1
                    row = _row(line, f"{file}:{number}")
                    if row is not None and row.id in found:
                        raise CallerError(f"{file}:{number}: {row.id} is there twice; delete one")
                    if row is not None:
                        found[row.id] = row
        except OSError as error:
            raise CallerError(f"{file}: {error.strerror}; name measurements") from None
    if not found:
        raise CallerError("no row has times of whole passes; name other measurements")
    return [found[name] for name in sorted(found)]


def _row(line: bytes, where: str) -> Row | None:
    try:
        given = json.loads(line)
    except ValueError as error:
        raise CallerError(f"{where}: not JSON ({error}); mend the line") from None
    for name, kind in _NEEDED.items():
        if not isinstance(given, dict) or not isinstance(given.get(name), kind):
            raise CallerError(f"{where}: {name} is no {kind.__name__}; mend the row")
    if given["grade"] not in ("A", "B") or not given["kind"].startswith(_KINDS):
        return None

    def text(name: str) -> str:
        return given.get(name) or ""

    proposed = text("hicache_hardware") or _first(_GPUS, text("gpu"))
    return Row(
        id=given["id"],
        kind=given["kind"],
        hardware=proposed,
        accelerator=_first(_GPUS, text("gpu")) if text("gpu") else proposed,
        model=text("hicache_model") or _simple(text("model").rpartition("/")[2]).replace(" ", "-"),
        engine=_first(_ENGINES, text("engine")),
        engine_version=text("engine_version"),
        gpu_count=given.get("gpu_count") or 0,
        tp=given.get("tp") or 0,
        pp=given.get("pp") or 1,
        ep=given.get("ep") or 0,
        dp_attention=given.get("dp_attention") or 0,
        weights=_precision(text("weights")),
        kv_dtype=_precision(text("kv_dtype")),
        workload=given.get("workload") or {},
        limits=given.get("limits") or {},
        metrics=given["metrics"],
        assume=tuple(given.get("assume") or ()),
        note=text("note"),
        date=text("date"),
    )


def version(text: str) -> tuple[int, ...]:
    """The numbers of a version such as 1.1.0rc2.post2; () without any."""
    found = re.search(r"\d{1,9}(?:\.\d{1,9})+", text)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _precision(text: str) -> str:
    simple = _simple(text)
    return next((name for pattern, name in _PRECISIONS if re.search(pattern, simple)), "")


def _first(table: tuple[tuple[str, str], ...], text: str) -> str:
    simple = _simple(text)
    found = (name for pattern, name in table if re.search(pattern, simple))
    return next(found, simple.replace(" ", "_")) if simple else "none"


def _simple(text: str) -> str:
    return " ".join(re.sub(r"[^\w.+]|_", " ", text.lower()).split())


def figures(row: Row) -> list[Figure]:
    """The figures of a row that are sums over its passes: means of times, and rates."""
    best: dict[str, tuple[int, int, Figure]] = {}
    for number, (name, value) in enumerate(row.metrics.items()):
        words = name.split("_")
        if isinstance(value, list) or not _PHASES.isdisjoint(words):
            continue
        if rate := _RATES.fullmatch(name):
            what, statistic, quantity = rate[1], "", THROUGHPUT
            value *= row.gpu_count if rate[2] and row.gpu_count else 1
        elif (time := _TIMES.fullmatch(name)) and not re.search("intercept|per_context|_at_", name):
            what, quantity = time[1], TTFT if time[1] == "ttft" else TPOT
            statistic = next((one for one in _STATISTICS if one in words), "mean")
            statistic = "median" if statistic == "p50" else statistic
            value *= 1e-3 if "_ms" in name else 1.0
        else:
            continue
        if (what, statistic) in _ORDER:
            place = _ORDER.index((what, statistic))
            if quantity not in best or place < best[quantity][1]:
                best[quantity] = number, place, Figure(what, quantity, value)
    chosen = sorted(best.values(), key=lambda each: each[0])
    return [figure for _, place, figure in chosen if _ORDER[place][1] != "median"]
