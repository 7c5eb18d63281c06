"""One simulated run: a replica with its own clock, the arrivals of a workload, and rounds.

Lives here: the run from its first arrival to its end. Does not contain rules of the simulation.
"""

from __future__ import annotations

import gc
from collections import abc
from collections.abc import Callable

from hicache.core.config import Config
from hicache.models import ModelDescription
from hicache.runtime.driver import Observer

from .arrivals import Arrivals
from .engine.sequence import RequestResult, Sequence
from .hardware.profile import HardwareProfile
from .options import EngineOptions, WorldOptions
from .replica import Replica, TimedResult, WorldStorage
from .rounds import RoundOptions, Rounds
from .sender import Sender
from .sending import SenderOptions
from .times.base import TimeModel
from .wants import WantOptions, Wants
from .workload import Job, Workload


class World(Replica):
    """See the module. progress: called with (ended, all) when a request ends. sender: how requests
    are sent, if not when they arrive; `sent` is called with each just before it is. costs: see
    Replica."""

    def __init__(
        self,
        workload: Workload,
        config: Config,
        model: ModelDescription,
        profile: HardwareProfile,
        *,
        engine: EngineOptions | None = None,
        options: WorldOptions | None = None,
        storage: WorldStorage | None = None,
        rounds: RoundOptions | None = None,
        sender: SenderOptions | None = None,
        wants: WantOptions | None = None,
        costs: TimeModel | None = None,
        observers: abc.Sequence[Observer] = (),
        progress: Callable[[int, int], None] = lambda ended, jobs: None,
    ) -> None:
        options = options or WorldOptions()
        super().__init__(
            workload,
            config,
            model,
            profile,
            engine=engine,
            options=options,
            storage=storage,
            observers=observers,
            costs=costs,
        )
        self._progress = progress
        self._sender: Sender | None = None
        if sender is not None:
            self._sender = Sender(sender, workload.jobs, self.clock, options.speed, self._arrive)
        arrive = self._sender.ready if self._sender is not None else self._arrive
        self._arrivals = Arrivals(workload, self.clock, options.speed, arrive, options.concurrency)
        self._rounds = self._rounds_of(rounds)
        self._wants = Wants(wants or WantOptions(), self.driver.feed)

    def _rounds_of(self, options: RoundOptions | None) -> Rounds | None:
        if options is None:
            return None
        jobs, view = self._workload.jobs, self.core.view
        return Rounds(options, jobs, self.clock, view, self.driver.feed, self._arrivals.follow)

    def run(self) -> TimedResult:
        """Runs all requests. After an exception (also Ctrl-C), `result` returns the results so far.

        Raises StuckError when requests are left and nothing is scheduled.
        """
        collecting = gc.isenabled()
        gc.disable()  # reference counting is enough; a collection would scan the whole tree
        try:
            self._wants.pin(self._workload)
            self._arrivals.begin()
            self._wants.on(self.clock)
            while self.clock.next_ns() >= 0:
                self.clock.step()
        finally:
            if collecting:
                gc.enable()
        if self.ended < len(self._workload.jobs):
            raise self.stuck()
        self.close()
        return self.result()

    def last(self) -> RequestResult:
        """The request that ended last."""
        return next(reversed(self.results.values()))

    def _arrive(self, job: Job) -> None:
        self.engine.arrive(job)

    def _ended(self, sequence: Sequence) -> None:
        super()._ended(sequence)
        if self._sender is not None:
            self._sender.ended(sequence.job)
        followers = self._arrivals.after(sequence.job)
        if self._rounds is not None:
            self._rounds.ended(sequence.job, followers)
        else:
            for job in followers:
                self._arrivals.follow(job)
        self._progress(self.ended, len(self._workload.jobs))
