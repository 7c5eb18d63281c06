"""The requests of each family of rows: how many, how long, and when the client sends them.

Follows the README of the measurements, family by family. Lengths are drawn as the benchmark of the
source drew them; what it does not say is named as an assumption. Does not know the server (see
setup) or run anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.sending import SenderOptions
from sim.workload import Job

from .rows import Row

Lengths = NDArray[np.int64]
Segments = tuple[tuple[int, int], ...]
_INFERENCEX_SEED = 0


class Drawn(NamedTuple):
    """Tokens of each prompt and of each output, in the order in which requests are sent."""

    inputs: Lengths
    outputs: Lengths


def fixed(isl: int, osl: int, count: int) -> Drawn:
    """Every request alike."""
    return Drawn(np.full(count, isl, dtype=np.int64), np.full(count, osl, dtype=np.int64))


def inferencex(isl: int, osl: int, count: int) -> Drawn:
    """Uniform integers from int(0.8 L) to L, prompts before outputs (InferenceX
    utils/bench_serving, sample_uniform)."""
    return _drawn(_INFERENCEX_SEED, (int(0.8 * isl), isl), (int(0.8 * osl), osl), count)


def around(isl: int, osl: int, count: int, permille: int) -> Drawn:
    """Uniform integers within so many thousandths of the mean."""
    low, high = 1000 - permille, 1000 + permille
    spans = [(length * low // 1000, length * high // 1000) for length in (isl, osl)]
    return _drawn(_INFERENCEX_SEED, spans[0], spans[1], count)


def cookbook(isl: int, osl: int, count: int) -> Drawn:
    """Uniform integers from 1 to L, as SGLang's bench_serving draws them from seed 1."""
    return _drawn(1, (1, isl), (1, osl), count)


def with_totals(drawn: Drawn, total_input: int, total_output: int) -> Drawn:
    """The same draws, scaled to the totals that a source printed."""
    return Drawn(*(_scaled(*pair) for pair in zip(drawn, (total_input, total_output), strict=True)))


def capped(isl: int, mean_output: int, most_output: int, count: int) -> Drawn:
    """Fixed prompts, and outputs spread evenly around a mean that a cap is above."""
    mean = min(mean_output, most_output)
    reach = min(mean - 1, most_output - mean)
    return _drawn(_INFERENCEX_SEED, (isl, isl), (mean - reach, mean + reach), count)


def _drawn(seed: int, inputs: tuple[int, int], outputs: tuple[int, int], count: int) -> Drawn:
    random = np.random.RandomState(seed)
    found = [random.randint(max(1, low), high + 1, size=count) for low, high in (inputs, outputs)]
    return Drawn(*(lengths.astype(np.int64) for lengths in found))


def _scaled(lengths: Lengths, total: int) -> Lengths:
    scaled: Lengths = np.rint(lengths * (total / max(1, int(lengths.sum())))).astype(np.int64)
    return np.maximum(scaled, 1)


_S = 1_000_000_000
_WAVES = 10  # prompts of an InferenceX run for each request in flight
_LONG_PROMPT = 28_650  # AccelMark's sharegpt_longctx_v1, median
_SHORT_PROMPT = 280  # its sharegpt_standard_v1
_ACCELMARK_OUTPUT = 345
_SHAREGPT = (215, 198)  # vLLM's sample of 200 prompts
_SHAREGPT_SIMULATED = 230
_MOST_REQUESTS = 1_000_000


@dataclass(frozen=True, slots=True)
class Load:
    """See the module.

    jobs         in the order in which they are sent. concurrency: requests in flight; 0 for
                 arrivals at their times.
    segments     of each prompt, see running; () where nothing is shared.
    sender       how a benchmark's client sends, if not by the two above.
    turns        of each request; () for one turn. emptied: the device is, between two turns.
    pass_tokens  of one pass, where the source gives no limit and the family has an assumption.
    pool_tokens  of the pool, where everything fits.
    """

    jobs: tuple[Job, ...]
    concurrency: int = 0
    segments: tuple[Segments, ...] = ()
    sender: SenderOptions | None = None
    turns: tuple[int, ...] = ()
    emptied: bool = False
    pass_tokens: int = 0
    pool_tokens: int = 0
    assumed: tuple[str, ...] = ()

    @property
    def mean_length(self) -> int:
        """Tokens of a mean request when it ends."""
        total = sum(job.input_length + job.output_length for job in self.jobs)
        return max(1, total // max(1, len(self.jobs)))

    @property
    def longest(self) -> int:
        return max(job.input_length + job.output_length for job in self.jobs)


def load_of(row: Row) -> Load | None:
    """The requests of a row; None where it does not say enough (see rules)."""
    for kind, family in _FAMILIES.items():
        if row.kind.startswith(kind):
            return family(row)
    return None


def alone(isl: int, osl: int, count: int = 1) -> Load:
    """Requests one at a time."""
    return _closed(fixed(isl, osl, count), 1)


def _closed(drawn: Drawn, concurrency: int, *assumed: str) -> Load:
    return Load(_jobs(drawn), concurrency, assumed=tuple(text for text in assumed if text))


def _jobs(drawn: Drawn, arrivals_ns: list[int] | None = None) -> tuple[Job, ...]:
    columns = zip(*(column.tolist() for column in drawn), strict=True)
    return tuple(
        Job(index, arrivals_ns[index] if arrivals_ns else 0, tokens, output)
        for index, (tokens, output) in enumerate(columns)
    )


def _closed_loop(row: Row) -> Load | None:
    """InferenceX, NVIDIA's own runs, NIM, the SGLang cookbook and vLLM's long contexts."""
    given = row.workload
    concurrency = given.get("concurrency")
    if not concurrency:
        return None
    # some rows divide it by the ranks of one replica; what counts is how many replicas there are
    concurrency = max(1, concurrency // _replicas(row))
    isl, osl = given.get("isl"), given.get("osl")
    count = given.get("num_prompts")
    how = str(given.get("distribution", ""))
    if "randint" in how or how == "random" or "sharegpt" in how:
        return _cookbook(row, concurrency)
    if not isinstance(isl, int) or not isinstance(osl, int):
        return None
    waves = "" if count else f"{_WAVES} prompts for each request in flight"
    count = count or _WAVES * concurrency
    if "uniform" in how and "15 %" in how:
        return _closed(around(isl, osl, count, 150), concurrency, waves)
    if "uniform" in how:
        return _closed(inferencex(isl, osl, count), concurrency, waves)
    found = _closed(fixed(isl, osl, count), concurrency, waves)
    if "not given" not in how:
        return found
    text = "fixed lengths"
    if row.engine in ("vllm", "trtllm"):
        found = replace(found, pass_tokens=isl + concurrency)
        text += ", and one prompt a pass, since the source gives no limit of tokens"
    return replace(found, assumed=(*found.assumed, text))


def _replicas(row: Row) -> int:
    ranks = max(1, row.tp) * (row.dp_attention or 1) * row.pp
    return max(1, row.gpu_count // ranks)


def _cookbook(row: Row, concurrency: int) -> Load | None:
    """SGLang's bench_serving: its draws where they are random, else the means of its totals."""
    given = row.workload
    count = given.get("num_prompts")
    totals = int(given.get("total_input") or 0), int(given.get("total_output") or 0)
    if not count or not all(totals):
        return None
    isl, osl = given.get("isl_max"), given.get("osl_max")
    if isinstance(isl, int) and isinstance(osl, int):
        means = totals[0] / count, totals[1] / count
        near = all(
            abs(mean / most - 0.5) < 0.15 for mean, most in zip(means, (isl, osl), strict=True)
        )
        drawn = cookbook(isl, osl, count)
        text = "" if near else "the draws of the script, scaled to the published totals"
    else:
        drawn = cookbook(2 * totals[0] // count, 2 * totals[1] // count, count)
        text = "ShareGPT's lengths: uniform, with the published totals"
    return _closed(with_totals(drawn, *totals), concurrency, text)


def _all_at_once(row: Row) -> Load | None:
    """trtllm-bench, and AccelMark's offline runs."""
    given = row.workload
    count: int = given.get("num_prompts") or 0
    if given.get("client_concurrency"):
        rate, seconds = row.metrics.get("output_tok_s"), row.metrics.get("elapsed_s")
        most = given.get("max_output")
        if not (rate and seconds and count and most):
            return None
        prompt = _accelmark_prompt(row)
        drawn = capped(prompt, max(1, round(rate * seconds / count)), most, count)
        text = f"prompts of {prompt} tokens, outputs spread evenly around their mean"
        return _closed(drawn, given["client_concurrency"], text)
    isl, osl = given.get("isl"), given.get("osl")
    if not isinstance(isl, int) or not isinstance(osl, int) or not count:
        return None
    return _closed(fixed(isl, osl, count), count)


def _accelmark_prompt(row: Row) -> int:
    return _LONG_PROMPT if "longctx" in str(row.workload.get("trace")) else _SHORT_PROMPT


def _alone(row: Row) -> Load | None:
    """One request at a time: prefill-bs1, decode-bs1, AccelMark's interactive runs."""
    given = row.workload
    isl, osl = given.get("isl"), given.get("osl")
    if isinstance(isl, int) and isinstance(osl, int):
        return alone(isl, osl)
    if "sharegpt" in str(given.get("trace")):
        isl = _accelmark_prompt(row)
        found = alone(isl, given.get("max_output") or _ACCELMARK_OUTPUT)
        return replace(found, assumed=(f"a prompt of {isl} tokens, the median",))
    if given.get("concurrency") == 1 and "TPOT at c=1 does not depend" in " ".join(row.assume):
        return replace(alone(128, 128), assumed=("128 tokens in and 128 out",))
    return None


def _batch(row: Row) -> Load | None:
    """A batch that begins and ends together."""
    given = row.workload
    isl, osl, batch = given.get("isl"), given.get("osl"), given.get("batch")
    if not isinstance(isl, int) or not isinstance(osl, int) or not isinstance(batch, int):
        return None
    return _closed(fixed(isl, osl, batch), batch)


def _open_loop(row: Row) -> Load | None:
    """AccelMark's online runs, vLLM's nightly benchmark, LLMServingSim's traces."""
    given = row.workload
    count, rate, trace = given.get("num_prompts"), given.get("rate"), str(given.get("trace", ""))
    if not isinstance(count, int):
        return None
    if isinstance(rate, list):
        return None
    most = given.get("max_output")
    if "sharegpt_" in trace and rate and most:
        isl = _accelmark_prompt(row)
        drawn = capped(isl, _ACCELMARK_OUTPUT, most, count)
        text = f"prompts of {isl} tokens, outputs evenly around {_ACCELMARK_OUTPUT}"
    elif "about 10 a second" in trace:
        names = ("mean_e2e_ms", "mean_ttft_ms", "mean_tpot_ms")
        whole, first, each = (row.metrics.get(name) for name in names)
        if not (whole and first and each):
            return None
        decoded = max(1, round((whole - first) / each))
        drawn = capped(_SHAREGPT_SIMULATED, decoded + 1, 2 * decoded, count)
        rate = 10
        text = (
            f"prompts of {_SHAREGPT_SIMULATED} tokens, outputs evenly around "
            "(end to end - TTFT) / TPOT"
        )
    elif "ShareGPT" in trace and rate:
        drawn = fixed(*_SHAREGPT, count)
        text = "{} tokens in and {} out".format(*_SHAREGPT)
    else:
        return None
    return Load(_jobs(drawn, _poisson(rate, count)), assumed=(text, "Poisson arrivals of one seed"))


def _poisson(rate: float, count: int) -> list[int]:
    gaps = np.random.RandomState(0).exponential(_S / rate, count)
    arrivals: list[int] = np.cumsum(gaps).astype(np.int64).tolist()
    return arrivals


_PROFILE = re.compile(
    r"(?P<prefixes>\d+)(?: prefixes)? x (?P<users>\d+)(?: users)?, question (?P<question>\d+), "
    r"output (?P<output>[\d,]+), system (?P<system>\d+), (?P<rates>\d+(?: then \d+)?) req/s"
)


def _shared_prefixes(row: Row) -> Load | None:
    """BLIS: groups of users with a system prompt each; every user asks one question, again and
    again, at a constant rate in stages."""
    given = row.workload.get("shared_prefix")
    stages = row.workload.get("rate")
    seconds = 600
    if not given:
        text = str(row.workload.get("profile"))
        found = _PROFILE.match(text)
        if found is None:
            return None
        given = {
            name: int(found[name].replace(",", ""))
            for name in ("prefixes", "users", "question", "output", "system")
        }
        stages = [int(rate) for rate in found["rates"].split(" then ")]
        if length := re.search(r"for ([\d,]+) s", text):
            seconds = int(length[1].replace(",", ""))
    else:
        seconds = given.get("seconds", seconds)
    rates = stages if isinstance(stages, list) else [stages]
    if not all([*rates, *given.values()]) or sum(rates) * seconds > _MOST_REQUESTS:
        return None
    arrivals: list[int] = []
    for stage, rate in enumerate(rates):
        begin = stage * seconds * _S
        arrivals += [begin + int(place * _S / rate) for place in range(int(rate * seconds))]
    prompts = given["prefixes"] * given["users"]
    system, question = given["system"], given["question"]
    drawn = fixed(system + question, given["output"], len(arrivals))
    order = np.random.RandomState(0).permutation(prompts).tolist()
    chosen = [order[place % prompts] for place in range(len(arrivals))]
    segments = tuple(((prompts + one // given["users"], system), (one, question)) for one in chosen)
    return Load(_jobs(drawn, arrivals), segments=segments)


def _rounds(row: Row) -> Load | None:
    """SGLang's bench_multiturn.py: clients whose prompts grow by a turn each round; what was
    generated is not found again, because the script sends a text that is tokenised anew."""
    given = row.workload
    rates = row.metrics.get("hit_rate_by_round")
    if not isinstance(rates, list) or not rates:
        return None
    text = str(given.get("script", ""))
    found = re.search(r"(\d+) clients.*prompt of round r = (\d+) \+ (\d+) r", text)
    assumed: tuple[str, ...] = ()
    room = 0
    if found:
        clients, first, more = (int(each) for each in found.groups())
        output = 64
    elif given.get("clients") and given.get("rounds"):
        clients, first, more, output = given["clients"], 8192, 8192, 64
        assumed = ("turns of 8,192 tokens, and room for all",)
        room = clients * (first + output) * len(rates) ** 2
    else:
        return None
    if not 0 < clients * len(rates) <= _MOST_REQUESTS:
        return None
    jobs, segments, turns = [], [], []
    for turn in range(len(rates)):
        for client in range(clients):
            index = turn * clients + client
            after = index - clients if turn else -1
            jobs.append(Job(index, 0, first + more * turn, output, after))
            before = tuple((client * 1000 + one + 1, more) for one in range(turn))
            segments.append(((client * 1000, first), *before))
            turns.append(turn)
    sender = SenderOptions(gap_ns=_S, policy="random", barrier=True)
    return Load(
        tuple(jobs),
        segments=tuple(segments),
        sender=sender,
        turns=tuple(turns),
        pool_tokens=room,
        assumed=assumed,
    )


def _load_back(row: Row) -> Load | None:
    """The same prompts twice: computed, and then loaded from host, with nothing left on device."""
    given = row.workload
    isl, count, rate = given.get("isl"), given.get("num_prompts"), given.get("rate")
    if not isinstance(isl, int) or not isinstance(count, int) or not rate:
        return None
    jobs = [
        Job(turn * count + one, int(one * _S / rate), isl, 1, one if turn else -1)
        for turn in range(2)
        for one in range(count)
    ]
    segments = tuple(((one, isl),) for one in range(count)) * 2
    turns = (0,) * count + (1,) * count
    return Load(tuple(jobs), segments=segments, turns=turns, emptied=True)


_FAMILIES: dict[str, Callable[[Row], Load | None]] = {
    "serving-closed-loop": _closed_loop,
    "throughput-saturation": _all_at_once,
    "serving-open-loop": _open_loop,
    "prefix-cache, serving-open-loop": _shared_prefixes,
    "prefix-cache hit rate per round": _rounds,
    "host offload / load-back": _load_back,
    "decode-bs8": _batch,
    "prefill-bs1 + decode-bs1 + throughput": _all_at_once,
    "prefill-bs1": _alone,
    "decode-bs1": _alone,
}
