"""Published measurements, one JSON object a line: the rows that constants are fitted to, the
figures of each that passes explain, and the requests that each served.

Lengths are drawn as the benchmark of the source drew them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
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
_PHASES = {"cold", "warm", "bs1"}  # parts of a run, or runs of their own
_WAVES = 10  # prompts of an InferenceX run for each request in flight
_LONG_PROMPT = 28_650  # AccelMark's sharegpt_longctx_v1, median
_SHORT_PROMPT = 280  # its sharegpt_standard_v1
_ACCELMARK_OUTPUT = 345


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
            if given["grade"] in ("A", "B") and _family_of(given["kind"]) is not None:
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
        assume=tuple(given.get("assume") or ()),
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
    """None where the row does not say enough."""
    family = _family_of(row.kind)
    assert family is not None
    return family(row)


def _closed_loop(row: Row) -> Load | None:
    """InferenceX, NVIDIA's own runs, NIM, the SGLang cookbook and vLLM's long contexts."""
    given = row.workload
    if not given.get("concurrency"):
        return None
    # some rows divide it by the ranks of one replica; what counts is how many replicas there are
    ranks = max(1, row.tp) * (row.dp_attention or 1) * row.pp
    concurrency = max(1, given["concurrency"] // max(1, row.gpu_count // ranks))
    how = str(given.get("distribution", ""))
    if "randint" in how or how == "random" or "sharegpt" in how:
        return _cookbook(row, concurrency)
    if row.lengths is None:
        return None
    isl, osl = row.lengths
    count = given.get("num_prompts") or _WAVES * concurrency
    if "uniform" in how:  # with 15 %, or InferenceX, utils/bench_serving, sample_uniform
        near = "15 %" in how
        spans = [
            (one * 850 // 1000, one * 1150 // 1000) if near else (int(0.8 * one), one)
            for one in (isl, osl)
        ]
        return _load(_drawn(0, spans[0], spans[1], count), concurrency)
    one_prompt = "not given" in how and row.engine in ("vllm", "trtllm")
    return _fixed(isl, osl, count, concurrency, isl + concurrency if one_prompt else 0)


def _cookbook(row: Row, concurrency: int) -> Load | None:
    """SGLang's bench_serving: its draws from seed 1, with the totals that it printed; of ShareGPT
    draws with these totals."""
    given = row.workload
    count = given.get("num_prompts")
    totals = int(given.get("total_input") or 0), int(given.get("total_output") or 0)
    if not count or not all(totals):
        return None
    isl, osl = given.get("isl_max"), given.get("osl_max")
    if not isinstance(isl, int) or not isinstance(osl, int):
        isl, osl = 2 * totals[0] // count, 2 * totals[1] // count
    pairs = zip(_drawn(1, (1, isl), (1, osl), count), totals, strict=True)
    scaled = [np.rint(each * (total / max(1, int(each.sum())))) for each, total in pairs]
    return _load([np.maximum(each.astype(np.int64), 1) for each in scaled], concurrency)


def _all_at_once(row: Row) -> Load | None:
    """trtllm-bench, and AccelMark's offline runs: outputs around the mean that its rate tells."""
    given = row.workload
    count: int = given.get("num_prompts") or 0
    if not given.get("client_concurrency"):
        return _fixed(*row.lengths, count, count) if row.lengths and count else None
    rate, seconds = row.metrics.get("output_tok_s"), row.metrics.get("elapsed_s")
    most = given.get("max_output")
    if not (rate and seconds and count and most):
        return None
    prompt = _accelmark_prompt(row)
    mean = min(max(1, round(rate * seconds / count)), most)
    reach = min(mean - 1, most - mean)
    drawn = _drawn(0, (prompt, prompt), (mean - reach, mean + reach), count)
    return _load(drawn, given["client_concurrency"])


def _alone(row: Row) -> Load | None:
    """One request at a time: prefill-bs1, decode-bs1, AccelMark's interactive runs."""
    given = row.workload
    if row.lengths:
        return _fixed(*row.lengths, 1, 1)
    if "sharegpt" in str(given.get("trace")):
        return _fixed(_accelmark_prompt(row), given.get("max_output") or _ACCELMARK_OUTPUT, 1, 1)
    if given.get("concurrency") == 1 and "TPOT at c=1 does not depend" in " ".join(row.assume):
        return _fixed(128, 128, 1, 1)
    return None


def _batch(row: Row) -> Load | None:
    """A batch that begins and ends together."""
    batch = row.workload.get("batch")
    return _fixed(*row.lengths, batch, batch) if row.lengths and isinstance(batch, int) else None


def _accelmark_prompt(row: Row) -> int:
    return _LONG_PROMPT if "longctx" in str(row.workload.get("trace")) else _SHORT_PROMPT


def _fixed(isl: int, osl: int, count: int, concurrency: int, pass_tokens: int = 0) -> Load:
    lengths = [np.full(count, length, dtype=np.int64) for length in (isl, osl)]
    return _load(lengths, concurrency, pass_tokens)


def _drawn(
    seed: int, inputs: tuple[int, int], outputs: tuple[int, int], count: int
) -> list[Lengths]:
    """Uniform integers, prompts before outputs."""
    random = np.random.RandomState(seed)
    return [
        random.randint(max(1, low), high + 1, size=count).astype(np.int64)
        for low, high in (inputs, outputs)
    ]


def _load(lengths: list[Lengths], concurrency: int, pass_tokens: int = 0) -> Load:
    columns = zip(*(column.tolist() for column in lengths), strict=True)
    jobs = (Job(index, 0, tokens, output) for index, (tokens, output) in enumerate(columns))
    return Load(tuple(jobs), concurrency, pass_tokens)


_FAMILIES: dict[str, Callable[[Row], Load | None]] = {
    "serving-closed-loop": _closed_loop,
    "throughput-saturation": _all_at_once,
    "decode-bs8": _batch,
    "prefill-bs1 + decode-bs1 + throughput": _all_at_once,
    "prefill-bs1": _alone,
    "decode-bs1": _alone,
}


def _family_of(kind: str) -> Callable[[Row], Load | None] | None:
    return next((one for name, one in _FAMILIES.items() if kind.startswith(name)), None)
