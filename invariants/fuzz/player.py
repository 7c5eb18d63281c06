"""The player that plays a sequence on a target: the scheduler of a cache, the clients of a server,
and the worker that ends transfers late, in any order or with failures.

Lives here: the requests, the transfers under way and virtual time; `operations` defines
what is played, `laws` and `play` judge.
"""

from collections import Counter
from typing import Any

from invariants.fuzz.schedules import Job, Pending, Schedule, by_time, schedule_of
from invariants.fuzz.sequence import Act
from invariants.fuzz.target import Config, Target, Transfer

PLAIN = Act(1, 0)
MOST_PAST = 40  # prompts that new ones may begin like


class Clients:
    """What every player has. past: recent prompts, which new ones may begin like. used: all request
    numbers ever used. counts: operations, faults and states reached."""

    def __init__(self, order: str) -> None:
        self.schedule: Schedule = schedule_of(order)
        self.now = self._turn = 0
        self.jobs: dict[int, Job] = {}
        self.used: set[int] = set()
        self.past: list[tuple[list[int], str]] = []
        self.pending: list[Pending] = []
        self.counts: Counter[str] = Counter()

    def pick(self, *stages: str) -> list[Job]:
        return [job for job in self.jobs.values() if job.stage in stages]

    def job(self, request: int, *stages: str) -> Job | None:
        """The request of this number if it is in one of these stages."""
        job = self.jobs.get(request)
        return job if job is not None and job.stage in stages else None


class Player(Clients):
    """answers: what the target answered to each entry."""

    def __init__(self, target: Target, order: str = "time") -> None:
        super().__init__(order)
        self.target = target
        self.config: Config = target.config
        self.page: int = target.config["page"]
        self.answers: list[dict[str, Any]] = []
        self.judged_at: Any = None  # the mark of the state that was judged last
        self.looks = 0
        self._acts: tuple[Act, ...] = ()
        self._number = 0

    def begin(self, op: str, gap: int, poll: bool, acts: tuple[Act, ...]) -> None:
        """Begins an entry: advances time and may end transfers."""
        self.counts[op] += 1
        self.answers.append({"op": op})
        self.now += gap
        self._acts, self._turn = acts, 0
        if poll:
            self.take_due()

    def answered(self, **answers: Any) -> None:
        """Notes what the target answered to the current operation."""
        self.answers[-1].update(answers)

    def remember(self, tokens: list[int], namespace: str) -> None:
        self.past = [*self.past[1 - MOST_PAST :], (list(tokens), namespace)]

    # -- transfers

    def collect(self) -> None:
        """Gives each transfer that began its delay, tie and fault."""
        for transfer in self.target.transfers():
            act = self._acts[self._turn % len(self._acts)] if self._acts else PLAIN
            self._turn += 1
            self._number += 1
            fault = act.fault if self.target.can.fails and transfer.fails else ""
            due = self.now + self.schedule.later(act.delay)
            self.pending.append(Pending(due, act.tie, self._number, transfer, fault))  # type: ignore[arg-type]
            self.counts[f"{type(transfer).__name__.lower()} began"] += 1
            if fault:
                self.counts[f"{type(transfer).__name__.lower()} fails"] += 1

    def take(self, pending: Pending, well: bool = False) -> None:
        """The worker ends this transfer. well: without its fault."""
        self.pending.remove(pending)
        transfer: Transfer = pending.action  # type: ignore[assignment]
        self.target.answer(transfer, "" if well else pending.fault)

    def take_due(self) -> None:
        """Ends the transfers that are due, in the order of the schedule, then lets the engine take
        the answers."""
        while self.pending:
            ready = self.schedule.offers(self.now, self.pending)
            pending = self.schedule.choose(ready, self.pending) if ready else None
            if pending is None:
                break
            self.take(pending)
        self.target.poll()
        self.collect()

    def settle(self) -> None:
        """Ends every transfer, without faults, until none begins any more."""
        self._acts = ()
        for _ in range(1000):
            self.target.poll()
            self.collect()
            if not self.pending:
                return
            self.take(min(self.pending, key=by_time), well=True)
        raise RuntimeError("transfers never end")

    def end(self, job: Job) -> None:
        """The request is gone; later prompts may begin like it."""
        self.remember(job.tokens, job.namespace)
        del self.jobs[job.id]
