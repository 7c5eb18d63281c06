"""The requests of a row: how many, how long, and how many at once. Lengths are drawn as the
benchmark of the source drew them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.workload import Job

from .rows import Row

_WAVES = 10  # prompts of an InferenceX run for each request in flight
_LONG_PROMPT = 28_650  # AccelMark's sharegpt_longctx_v1, median
_SHORT_PROMPT = 280  # its sharegpt_standard_v1
_ACCELMARK_OUTPUT = 345


class Drawn(NamedTuple):
    """Tokens of each prompt and of each output, in the order in which requests are sent."""

    inputs: NDArray[np.int64]
    outputs: NDArray[np.int64]


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
    family = next(one for kind, one in _FAMILIES.items() if row.kind.startswith(kind))
    return family(row)


def _closed_loop(row: Row) -> Load | None:
    """InferenceX, NVIDIA's own runs, NIM, the SGLang cookbook and vLLM's long contexts."""
    given = row.workload
    if not given.get("concurrency"):
        return None
    # some rows divide it by the ranks of one replica; what counts is how many replicas there are
    ranks = max(1, row.tp) * (row.dp_attention or 1) * row.pp
    concurrency = max(1, given["concurrency"] // max(1, row.gpu_count // ranks))
    isl, osl, count = given.get("isl"), given.get("osl"), given.get("num_prompts")
    how = str(given.get("distribution", ""))
    if "randint" in how or how == "random" or "sharegpt" in how:
        return _cookbook(row, concurrency)
    if not isinstance(isl, int) or not isinstance(osl, int):
        return None
    count = count or _WAVES * concurrency
    if "uniform" in how and "15 %" in how:
        spans = [(length * 850 // 1000, length * 1150 // 1000) for length in (isl, osl)]
        return _load(_drawn(0, spans[0], spans[1], count), concurrency)
    if "uniform" in how:  # InferenceX, utils/bench_serving, sample_uniform
        drawn = _drawn(0, (int(0.8 * isl), isl), (int(0.8 * osl), osl), count)
        return _load(drawn, concurrency)
    one_prompt = "not given" in how and row.engine in ("vllm", "trtllm")
    return _load(_fixed(isl, osl, count), concurrency, isl + concurrency if one_prompt else 0)


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
    lengths = [np.maximum(each.astype(np.int64), 1) for each in scaled]
    return _load(Drawn(*lengths), concurrency)


def _all_at_once(row: Row) -> Load | None:
    """trtllm-bench, and AccelMark's offline runs: outputs around the mean that its rate tells."""
    given = row.workload
    count: int = given.get("num_prompts") or 0
    if given.get("client_concurrency"):
        rate, seconds = row.metrics.get("output_tok_s"), row.metrics.get("elapsed_s")
        most = given.get("max_output")
        if not (rate and seconds and count and most):
            return None
        prompt = _accelmark_prompt(row)
        mean = min(max(1, round(rate * seconds / count)), most)
        reach = min(mean - 1, most - mean)
        drawn = _drawn(0, (prompt, prompt), (mean - reach, mean + reach), count)
        return _load(drawn, given["client_concurrency"])
    isl, osl = given.get("isl"), given.get("osl")
    if not isinstance(isl, int) or not isinstance(osl, int) or not count:
        return None
    return _load(_fixed(isl, osl, count), count)


def _alone(row: Row) -> Load | None:
    """One request at a time: prefill-bs1, decode-bs1, AccelMark's interactive runs."""
    given = row.workload
    isl, osl = given.get("isl"), given.get("osl")
    if isinstance(isl, int) and isinstance(osl, int):
        pass
    elif "sharegpt" in str(given.get("trace")):
        isl, osl = _accelmark_prompt(row), given.get("max_output") or _ACCELMARK_OUTPUT
    elif given.get("concurrency") == 1 and "TPOT at c=1 does not depend" in " ".join(row.assume):
        isl = osl = 128
    else:
        return None
    return _load(_fixed(isl, osl, 1), 1)


def _batch(row: Row) -> Load | None:
    """A batch that begins and ends together."""
    given = row.workload
    isl, osl, batch = given.get("isl"), given.get("osl"), given.get("batch")
    if not isinstance(isl, int) or not isinstance(osl, int) or not isinstance(batch, int):
        return None
    return _load(_fixed(isl, osl, batch), batch)


def _accelmark_prompt(row: Row) -> int:
    return _LONG_PROMPT if "longctx" in str(row.workload.get("trace")) else _SHORT_PROMPT


def _fixed(isl: int, osl: int, count: int) -> Drawn:
    return Drawn(np.full(count, isl, dtype=np.int64), np.full(count, osl, dtype=np.int64))


def _drawn(seed: int, inputs: tuple[int, int], outputs: tuple[int, int], count: int) -> Drawn:
    """Uniform integers, prompts before outputs."""
    random = np.random.RandomState(seed)
    found = [random.randint(max(1, low), high + 1, size=count) for low, high in (inputs, outputs)]
    return Drawn(*(lengths.astype(np.int64) for lengths in found))


def _load(drawn: Drawn, concurrency: int, pass_tokens: int = 0) -> Load:
    columns = zip(*(column.tolist() for column in drawn), strict=True)
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
