"""Small workloads whose prefixes overlap, and a model for every choice of components."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hicache.core.types import Key
from hicache.models import ModelDescription
from sim.content import draw
from sim.workload import Job

PAGE = 4


class Prompts:
    """A workload from explicit token lists, the output of each job included and its own."""

    def __init__(self, jobs: list[Job], prompts: list[list[int]], page_size: int = PAGE) -> None:
        self.jobs = jobs
        self.page_size = page_size
        self._prompts = prompts

    def key(self, job: Job, length: int) -> Key:
        prompt = self._prompts[job.index]
        output = [10**6 * (job.index + 1) + number for number in range(job.output_length)]
        return Key.from_tokens((prompt + output)[:length], self.page_size)


def shared_prefixes(
    seed: int, count: int, *, longest: int = 40, outputs: int = 12, gap_ns: int = 20_000_000
) -> Prompts:
    """`count` jobs, each beginning like one before it, some waiting for an earlier one to end."""
    jobs: list[Job] = []
    prompts: list[list[int]] = []
    now_ns = 0
    for index in range(count):
        now_ns += draw(gap_ns, seed, index, "gap")
        length = 1 + draw(longest, seed, index, "length")
        shared: list[int] = []
        if prompts and draw(4, seed, index, "shares"):
            source = prompts[draw(len(prompts), seed, index, "source")]
            shared = source[: draw(len(source) + 1, seed, index, "cut")][: length - 1]
        prompt = shared + [index * 1000 + number for number in range(length - len(shared))]
        after = draw(index, seed, index, "after") if index and not draw(4, seed, index, "c") else -1
        arrival_ns = draw(gap_ns, seed, index, "think") if after >= 0 else now_ns
        output = draw(outputs, seed, index, "output")
        jobs.append(Job(index, arrival_ns, length, output, after))
        prompts.append(prompt)
    return Prompts(jobs, prompts)


def in_sessions(workload: Prompts) -> Prompts:
    """The workload with sessions and priorities, for the orders that read them."""
    workload.jobs = [
        replace(job, session=job.index % 4 - 1, priority=job.index % 3) for job in workload.jobs
    ]
    return workload


def alone(arrivals_ns: Sequence[int], tokens: int, outputs: int = 1) -> Prompts:
    """Equal requests that share nothing."""
    jobs = [Job(index, time, tokens, outputs) for index, time in enumerate(arrivals_ns)]
    return Prompts(jobs, [[1000 * job.index + n for n in range(tokens)] for job in jobs])


def hybrid(components: tuple[str, ...], window: int, model: ModelDescription) -> ModelDescription:
    """The model with its layers dealt out to the components in turn."""
    (kv,) = model.pools
    state = {"kind": "state", "parts": ("state",), "page_rows": 1, "window": 1}
    special: dict[str, dict[str, Any]] = {"full": {}, "swa": {"window": window}, "mamba": state}
    pools = tuple(
        replace(
            kv,
            name=name,
            component=name,
            layers=kv.layers[place :: len(components)],
            **special[name],
        )
        for place, name in enumerate(components)
    )
    return replace(model, pools=pools)
