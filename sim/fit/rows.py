"""Published measurements, one JSON object a line: the rows that constants are fitted to, the
figures of each that passes explain, and the requests that each served.

Lengths are drawn as the benchmark of the source drew them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sim.workload import Job

FILE = "measurements.jsonl"
TTFT, TPOT, THROUGHPUT = "ttft", "tpot", "throughput"
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
_KINDS = ("serving-closed-loop", "throughput-saturation")
_PHASES = {"cold", "warm", "bs1"}  # parts of a run, or runs of their own
_WAVES = 10  # prompts of an InferenceX run for each request in flight


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
    note: str
    date: str

    @property
    def group(self) -> str:
        """Accelerator, model and engine, such as "h100|llama-3.1-8b|vllm"."""
        return f"{self.hardware}|{self.model}|{self.engine}"

    @property
    def lengths(self) -> tuple[int, int] | None:
        """Of a prompt and its output, if the row says both."""
        isl, osl = self.workload.get("isl"), self.workload.get("osl")
        return (isl, osl) if isinstance(isl, int) and isinstance(osl, int) else None


@dataclass(frozen=True, slots=True)
class Figure:
    """what: ttft, tpot, itl, output_tok_s, ... quantity: the same for tpot and itl, and for all
    rates. value: a mean in seconds, or a rate per second."""

    what: str
    quantity: str
    value: float


def read(paths: Iterable[Path]) -> list[Row]:
    """The rows of grades A and B with times of whole passes, by id. paths: files, or folders with
    measurements.jsonl. Raises ValueError for a row that is there twice."""
    rows: dict[str, Row] = {}
    for path in paths:
        for line in (path / FILE if path.is_dir() else path).read_text().splitlines():
            given = json.loads(line)
            if given["grade"] in ("A", "B") and given["kind"].startswith(_KINDS):
                if given["id"] in rows:
                    raise ValueError(f"{path}: {given['id']} is there twice; delete one")
                rows[given["id"]] = _row(given)
    return [rows[name] for name in sorted(rows)]


def _row(given: Mapping[str, Any]) -> Row:
    def text(name: str) -> str:
        return given.get(name) or ""

    proposed = text("hicache_hardware") or _first(_GPUS, text("gpu"))
    numbers = ("gpu_count", "tp", "ep", "dp_attention")
    fields: dict[str, Any] = {name: given.get(name) or 0 for name in numbers}
    fields |= {name: given.get(name) or {} for name in ("workload", "limits", "metrics")}
    fields |= {name: text(name) for name in ("id", "kind", "engine_version", "note", "date")}
    return Row(
        hardware=proposed,
        accelerator=_first(_GPUS, text("gpu")) if text("gpu") else proposed,
        model=text("hicache_model") or _simple(text("model").rpartition("/")[2]).replace(" ", "-"),
        engine=_first(_ENGINES, text("engine")),
        pp=given.get("pp") or 1,
        weights=_precision(text("weights")),
        kv_dtype=_precision(text("kv_dtype")),
        **fields,
    )


def version(text: str) -> tuple[int, ...]:
    """The numbers of a version such as 1.1.0rc2.post2; () without any."""
    match = re.search(r"\d{1,9}(?:\.\d{1,9})+", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _precision(text: str) -> str:
    simple = _simple(text)
    return next((name for pattern, name in _PRECISIONS if re.search(pattern, simple)), "")


def _first(table: tuple[tuple[str, str], ...], text: str) -> str:
    simple = _simple(text)
    names = (name for pattern, name in table if re.search(pattern, simple))
    return next(names, simple.replace(" ", "_")) if simple else "none"


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


# -- the requests of a row

Lengths: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Load:
    """concurrency: requests in flight. pass_tokens: of one pass, where the source gives no limit
    and the family has an assumption; else 0."""

    jobs: tuple[Job, ...]
    concurrency: int
    pass_tokens: int = 0

    @property
    def mean_length(self) -> int:
        """Tokens of a mean request when it ends."""
        total = sum(job.input_length + job.output_length for job in self.jobs)
        return max(1, total // len(self.jobs))

    @property
    def longest(self) -> int:
        return max(job.input_length + job.output_length for job in self.jobs)


def load_of(row: Row) -> Load | None:
    """The requests of InferenceX, NVIDIA's own runs, NIM, vLLM's long contexts (a closed loop), and
    of trtllm-bench (all at once). None where the row does not say enough."""
    given = row.workload
    if row.lengths is None:
        return None
    (isl, osl), count = row.lengths, given.get("num_prompts") or 0
    if row.kind.startswith(_KINDS[1]):
        return _load(_fixed(isl, osl, count), count) if count else None
    if not given.get("concurrency"):
        return None
    # some rows divide it by the ranks of one replica; what counts is how many replicas there are
    ranks = max(1, row.tp) * (row.dp_attention or 1) * row.pp
    concurrency = max(1, given["concurrency"] // max(1, row.gpu_count // ranks))
    count, how = count or _WAVES * concurrency, str(given.get("distribution", ""))
    if "uniform" in how:  # InferenceX, utils/bench_serving, sample_uniform: prompts before outputs
        random = np.random.RandomState(0)
        spans = [(max(1, int(0.8 * one)), one) for one in (isl, osl)]
        drawn = [random.randint(low, high + 1, size=count) for low, high in spans]
        return _load([one.astype(np.int64) for one in drawn], concurrency)
    one_prompt = "not given" in how and row.engine in ("vllm", "trtllm")
    return _load(_fixed(isl, osl, count), concurrency, isl + concurrency if one_prompt else 0)


def _fixed(isl: int, osl: int, count: int) -> list[Lengths]:
    return [np.full(count, length, dtype=np.int64) for length in (isl, osl)]


def _load(lengths: list[Lengths], concurrency: int, pass_tokens: int = 0) -> Load:
    columns = zip(*(column.tolist() for column in lengths), strict=True)
    jobs = (Job(index, 0, tokens, output) for index, (tokens, output) in enumerate(columns))
    return Load(tuple(jobs), concurrency, pass_tokens)
