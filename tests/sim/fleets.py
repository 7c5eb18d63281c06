"""Small fleets for tests, on the workloads of tests/sim/rig."""

from collections.abc import Sequence
from typing import Any

from hicache.runtime.driver import Observer
from invariants.checker import Checker
from sim.fleet import Fleet, FleetResult
from sim.options import EngineOptions, FleetOptions, KvLinkOptions, RouterOptions, WorldOptions
from sim.workload import Job
from tests.sim.rig import MODEL, PROFILE
from tests.sim.workloads import Prompts
from tests.tiny import configured

PAGE_BYTES = 1 << 19
ROUTERS = ("round_robin", "least_loaded", "prefix_aware", "session_sticky")
INSTANT = KvLinkOptions(10**18, 0)
EVERY = WorldOptions(checks="every")


def make(
    workload: Prompts,
    members: tuple[int, int] = (2, 0),
    router: str | RouterOptions = "round_robin",
    *,
    device: int = 24,
    host: int = 40,
    link: KvLinkOptions | None = None,
    engine: EngineOptions | None = None,
    options: WorldOptions = EVERY,
    observers: Sequence[Sequence[Observer]] | None = None,
    **settings: Any,
) -> Fleet:
    """members: replicas, and decode replicas. Every core is watched, if observers are not given."""
    config = configured(workload.page_size, (device,), (host,), ("full",), **settings)
    named = RouterOptions(router) if isinstance(router, str) else router
    fleet = FleetOptions(*members, named, link or KvLinkOptions())
    if observers is None:
        observers = [[Checker("every")] for _ in range(fleet.members)]
    return Fleet(
        workload,
        config,
        MODEL,
        PROFILE,
        fleet,
        page_bytes=PAGE_BYTES,
        engine=engine,
        options=options,
        observers=observers,
    )


def run(workload: Prompts, *args: Any, **rest: Any) -> FleetResult:
    return make(workload, *args, **rest).run()


def reused(result: FleetResult) -> int:
    return sum(request.device_tokens + request.host_tokens for request in result.requests)


class Part(Prompts):
    """Some of the jobs of a workload, with their numbers."""

    def __init__(self, prompts: Prompts, numbers: Sequence[int]) -> None:
        super().__init__([prompts.jobs[number] for number in numbers], prompts._prompts)
        self.page_size = prompts.page_size


def conversations(clients: int, turns: int, first: int = 24, more: int = 12) -> Prompts:
    """Open-loop conversations: each prompt begins with the one before it of its client."""
    jobs: list[Job] = []
    prompts: list[list[int]] = []
    for turn in range(turns):
        for client in range(clients):
            length = first + turn * more
            prompts.append([client * 100_000 + number for number in range(length)])
            index = len(jobs)
            jobs.append(Job(index, index * 200_000_000, length, 3, -1, client))
    return Prompts(jobs, prompts)
