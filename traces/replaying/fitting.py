"""Whether every request fits the device: one error for the largest need, or a count of what is left
out.

Lives here: the check before a run, and a trace without the requests that were left out. Does not
choose sizes (see pools) or know what other hardware holds (see ways).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from sim.engine.sequence import final_length
from sim.workload import Job

from ..formats._jobs import Jobs
from ..formats._with_jobs import PagesWithJobs
from ..formats.base import Paged, Trace
from .defaults import BACKBONE, HARDWARE
from .ways import Holding


@dataclass(frozen=True, slots=True)
class Skipped:
    """Requests that are too large: their numbers in the trace, and their prompt tokens."""

    requests: frozenset[int] = frozenset()
    input_tokens: int = 0


def check_fit(trace: Trace, paged: Paged, holding: Holding) -> tuple[Skipped, Skipped]:
    """The requests to leave out, and those to compute without the cache. In `hits` mode, where no
    engine has to run it, a request that the device cannot hold is one of the latter unless
    --skip-too-large was given.

    Raises CallerError if a pool is too small for any request or the device holds none of them, and
    in `timed` mode if a request is too large for it and --skip-too-large was not given.

    The error names every option that has to change, with a value that is enough for all requests;
    where the hardware cannot hold as much, the options that make it hold as much.
    """
    options, shorts = holding.options, holding.sizes.shorts
    device_pages = holding.sizes.device[0]
    with_output = options.mode == "timed" or paged.knows_output
    room = device_pages * paged.page_size
    jobs = trace.jobs
    tokens = jobs.input_lengths + (jobs.output_lengths - 1) * with_output
    large = np.flatnonzero(tokens > room)
    uncached = options.mode == "hits" and not options.skip_too_large and len(large) < len(jobs)
    needed = {short.component: short.tokens for short in shorts}
    if len(large) and not options.skip_too_large and not uncached:
        largest = int(tokens.argmax())
        pages = -(-int(tokens[largest]) // paged.page_size)
        needed[BACKBONE] = max(needed.get(BACKBONE, 0), pages * paged.page_size)
    if shorts:
        short = shorts[0]
        said = f"{short.option}: expected {short.expected}, found {short.found}"
        raise CallerError(f"{said}; {_hint(holding, needed, [])}")
    if not len(large):
        return Skipped(), Skipped()
    if uncached:
        return Skipped(), _of_numbers(jobs, large)
    if not options.skip_too_large:
        hint = _hint(holding, needed, ["--skip-too-large"])
        raise CallerError(
            f"{trace.path}:{trace.line_numbers[largest]}: expected a request of at most "
            f"{device_pages} pages of {paged.page_size} tokens (the device pool of {BACKBONE}), "
            f"found request {largest} with {pages} pages ({_of(jobs[largest], with_output)}), the "
            f"largest of {len(large)} that do not fit; {hint}"
        )
    out = _with_followers(jobs, large)
    if out.all():
        raise CallerError(
            f"--skip-too-large: expected a request that fits {device_pages} pages of "
            f"{paged.page_size} tokens, found none in {len(out)}; enlarge the device pool"
        )
    return _of_numbers(jobs, np.flatnonzero(out)), Skipped()


def _of_numbers(jobs: Jobs, numbers: NDArray[np.intp]) -> Skipped:
    tokens = int(jobs.input_lengths[numbers].sum(dtype=np.int64))
    return Skipped(frozenset(numbers.tolist()), tokens)


def _of(job: Job, with_output: bool) -> str:
    if not with_output:
        return f"{job.input_length} prompt tokens"
    return f"{final_length(job)} tokens, {job.input_length} of them prompt"


def _hint(holding: Holding, needed: Mapping[str, int], others: list[str]) -> str:
    """What to give, the alternatives separated by "or". needed: tokens of each component that has
    to grow. others: more alternatives."""
    options = holding.options
    sizes = {name: tokens for name, tokens in needed.items() if name != BACKBONE}
    grown = [f"--{name}-tokens {tokens}" for name, tokens in sizes.items()]
    if BACKBONE not in needed:
        return f"give {', or '.join([' and '.join(grown), *others])}"
    larger = {f"{name}_tokens": tokens for name, tokens in sizes.items()}
    holding = replace(holding, options=replace(options, **larger))  # type: ignore[arg-type]
    tokens, held = needed[BACKBONE], holding.pages()
    pages, given = tokens // holding.page_size, []
    if options.device_pages is not None:
        given = [f"--device-pages {pages}"]
    elif options.device_tokens is not None or pages <= held:
        given = [f"--device-tokens {tokens}"]
    if pages <= held:
        return f"give {', or '.join([' and '.join([*given, *grown]), *others])}"
    ways = [" and ".join([way, *given, *grown]) for way in holding.ways(pages)]
    holds = f"{options.hardware or HARDWARE} holds {held:,} pages of {BACKBONE} beside the weights"
    if not ways and not others:
        return f"{holds}, and no way is known to hold {pages:,}"
    return f"{holds}; give {', or '.join([*ways, *others])}"


def _with_followers(jobs: Jobs, large: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether each request is too large or continues one that is: its history is never computed."""
    out = np.zeros(len(jobs), dtype=np.bool_)
    out[large] = True
    afters = jobs.afters
    for number in np.flatnonzero(afters >= 0).tolist():  # a request follows an earlier one
        out[number] |= out[afters[number]]
    return out


def without(paged: Paged, skipped: Skipped) -> Paged:
    """The trace without the skipped requests. The others keep their numbers."""
    return Kept(paged, skipped) if skipped.requests else paged


class Kept(PagesWithJobs):
    """A trace in pages, without some requests."""

    def __init__(self, paged: Paged, skipped: Skipped) -> None:
        out = np.fromiter(skipped.requests, np.int64, len(skipped.requests))
        super().__init__(paged, paged.jobs.only(np.setdiff1d(paged.jobs.numbers, out)))
