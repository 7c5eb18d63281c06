"""The hits of an engine and those that the simulator predicts, request by request.

Both get the same requests in the same order, the same blocks, and the same limits of the scheduler.
The engine says how many tokens of each prompt it had; a replay in passes says how many it would
have: that of the core, or where layers have several groups of blocks that of one pool.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hicache.core.config import Config
from invariants.watch import Watch
from sim import engine_profiles
from sim.engine.sequence import final_length
from sim.options import EngineOptions
from sim.recorder import Recorder

from ...formats.base import Paged
from ...replaying.account import Account
from ...replaying.one_pool import OnePoolReplay
from ...replaying.passes import PassReplay
from ..models import VOCABULARY
from ..vllm import Vllm
from .tokens import Tokens

_SECONDS = 600.0  # for 32 requests
Done = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """What decides the order of passes, as the engine says it. blocks: that a request may have;
    vLLM keeps one more that has nothing. ahead: a pass is composed while the one before it runs.
    windows: tokens of the window of each group of layers; 0: full attention. one_pool: predicted
    with one pool of blocks, which keeps twice what is computed twice, instead of the core.
    retention: tokens between the places where windows can be hit, see `one_pool`."""

    blocks: int
    token_budget: int
    max_running: int
    ahead: bool
    at_once: int
    windows: tuple[int, ...] = (0,)
    one_pool: bool = False
    retention: int | None = 0

    @classmethod
    def of(cls, facts: dict[str, Any], at_once: int) -> Limits:
        """From the facts of an engine that was opened."""
        windows = tuple(group["window"] for group in facts["groups"])
        return cls(
            facts["blocks"] - 1,
            facts["max_num_batched_tokens"],
            facts["max_num_seqs"],
            facts["async_scheduling"],
            at_once,
            windows,
            len(windows) > 1,
            facts["retention"],
        )


@dataclass(frozen=True, slots=True)
class Predicted:
    """hits: tokens of each request. preempted: how often one was. digest: of the core's decisions,
    or of what one pool evicted. checked: operations after which the invariants were checked."""

    hits: list[int]
    preempted: int
    digest: str
    checked: int


def asked(engine: Vllm, paged: Paged, at_once: int, done: Done) -> tuple[list[int], dict[str, Any]]:
    """The cached tokens of each request, and how many steps and seconds the engine took."""
    tokens, hits = Tokens(paged, VOCABULARY), list[int]()
    totals = {"steps": 0, "wall_s": 0.0}
    jobs = list(paged.jobs)
    # what was generated is known before a prompt that repeats it is made
    apart = 1 if paged.knows_output else len(jobs)
    for first in range(0, len(jobs), apart):
        some = jobs[first : first + apart]
        prompts = [tokens.prompt(job) for job in some]
        requests = [
            {"tokens": prompt, "max_tokens": max(1, job.output_length)}
            for job, prompt in zip(some, prompts, strict=True)
        ]
        answer = engine.generate(
            requests,
            None,
            _SECONDS,
            at_once,
            on=lambda line, first=first: done(first + line["ended"]),  # type: ignore[misc]
        )
        for job, prompt, one in zip(some, prompts, answer["answers"], strict=True):
            hits.append(one["cached"])
            tokens.sampled(job, prompt, one["tokens"])
        for name in totals:
            totals[name] += answer[name]
        done(first + len(some))
    return hits, totals


def predicted(paged: Paged, limits: Limits, command: str, done: Done) -> Predicted:
    """What the simulator says of the same requests."""
    profile = replace(engine_profiles.get("vllm"), lookahead=limits.ahead)
    options = EngineOptions(limits.token_budget, limits.max_running, profile=profile)
    if limits.one_pool:
        of_pool = limits.blocks, limits.windows, limits.retention
        shared = OnePoolReplay(options, limits.at_once, paged, *of_pool)
        shared.run(done)
        shared.check()
        return Predicted(
            [shared.hits[job.index] for job in paged.jobs],
            shared.preempted,
            shared.pool.evicted,
            0,
        )
    account = Account(paged.jobs, paged.page_size, np.zeros(len(paged.jobs), dtype=np.int32))
    recorder, watch = Recorder(lambda: 0), Watch("every", command)
    config = Config(page_size=paged.page_size, device_pages=(limits.blocks,))
    played = PassReplay(options, limits.at_once, paged, config, account, (recorder, watch))
    played.run(done)
    hits = [row.device for row in account.rows()]
    return Predicted(hits, played.preempted, recorder.digest(), watch.operations)


def blocks_for(paged: Paged, groups: int) -> int:
    """A pool that holds several requests and not all, where the user names none."""
    pages = [-(-final_length(job) // paged.page_size) for job in paged.jobs]
    return groups * max(max(pages) + 1, min(16 * max(pages), sum(pages) // 4))


def fewest_blocks(paged: Paged, groups: int) -> int:
    """The smallest pool with which vLLM starts: for the largest request, and in each group with a
    window one more."""
    return groups * -(-(longest(paged) + 1) // paged.page_size) + groups - 1


def longest(paged: Paged) -> int:
    """Tokens of the longest request, with what it generates."""
    return max(job.input_length + max(1, job.output_length) for job in paged.jobs)
