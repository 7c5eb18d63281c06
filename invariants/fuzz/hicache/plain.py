"""A plain scheduler: serves requests to their end, first come, first served, without faults.

Lives here: the rounds of that scheduler, and the bounds that it must keep. Does not draw anything
(see ops) or judge single answers (see checks).

In a round each running request takes one step, oldest first: a chunk of its prompt, or pages to
generate more. Then waiting requests are admitted until one is refused, and all replies are taken.
While a running request waits for pages that are written back, none is admitted: it would take them.
A request that is refused for lack of pages has the one that the refusal names retracted, and asks
again; one that lacks pages although it is alone is given up, which the specification judges. So the
oldest request, which is never retracted while another runs, takes a step in every round in which it
waits for no copy, and

    preemptions <= (requests - 1) * steps        steps: 2 + pages + passes, summed over requests

where a request has a pass for each page at least, or for each chunk if chunks are smaller.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from hicache.core.actions import Outcome, Refused
from hicache.core.errors import About
from hicache.core.events import AdmitWanted, ContinueWanted, Finished, PagesWanted
from hicache.core.types import Tier
from invariants.fuzz.hicache.hand import Hand
from invariants.fuzz.records import Job

WORD = 1  # the token that is generated


class Stuck(AssertionError):
    """Something that the core accepted does not end, although there are no more faults."""

    def __init__(self, text: str, *about: About) -> None:
        super().__init__(text)
        self.about = about


class Plain:
    """chunk: tokens of a pass. stretch: tokens for which a request asks at a time. left: by
    request, the tokens that it has to generate yet."""

    def __init__(self, hand: Hand, left: dict[int, int], chunk: int, stretch: int) -> None:
        self.hand = hand
        self.left = left
        self.chunk, self.stretch = chunk, stretch
        self.preemptions = 0
        self.running: list[int] = []
        size = hand.config.page_size
        jobs = [hand.jobs[number] for number in left]
        sizes = [len(job.tokens) + left[job.id] for job in jobs]
        self.steps = sum(2 + ceil(one / size) + ceil(one / min(size, chunk)) for one in sizes)
        self.most = max(0, len(jobs) - 1) * self.steps

    def serve(self) -> None:
        """Serves the requests to their end. Raises Stuck if a bound is exceeded."""
        hand = self.hand
        waits = sum(pool.capacity for pool in hand.core.view.pools(Tier.DEVICE))
        hand.settle()
        for _ in range(self.steps * (1 + waits)):
            if not any(number in hand.jobs for number in self.left):
                return
            self.running = [number for number in self.running if number in hand.jobs]
            known = [number for number in self.left if self._is(number, "idle", "decoding")]
            self.running += [number for number in known if number not in self.running]
            stalled = False
            for number in tuple(self.running):
                if self._is(number, "idle", "decoding"):
                    stalled |= self._step(hand.jobs[number])
            if not stalled:
                self._admit(number for number in sorted(self.left) if self._is(number, "waiting"))
            hand.settle()
        there = [number for number in self.left if number in hand.jobs]
        if there:
            raise Stuck(
                f"served first come, first served, {len(there)} of {len(self.left)} requests do "
                f"not end, which need {self.steps} steps together",
                *(About("request", number) for number in there),
            )

    def _is(self, number: int, *stages: str) -> bool:
        return self.hand.job(number, *stages) is not None

    def _admit(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            job = self.hand.jobs[number]
            refusal = _refusal(self.hand.feed(AdmitWanted(number, self.chunk)))
            if refusal is None:
                self.running.append(number)
            elif refusal.reason == "too_large" or self._is_given_up(job, refusal):
                self.hand.abort(job)
            else:
                return

    def _step(self, job: Job) -> bool:
        """Returns whether the request waits for pages that are written back."""
        page = self.hand.config.page_size
        to_end = page - len(job.tokens) % page  # tokens for which it needs a page at most
        asked = min(self.left[job.id], self.stretch if to_end == page else to_end)
        while self._is(job.id, "idle", "decoding"):
            if job.stage == "idle":
                refusal = _refusal(self.hand.feed(ContinueWanted(job.id, self.chunk)))
            elif asked:
                refusal = self._grow(job, asked)
            else:
                self._finish(job)
                return False
            if refusal is None or refusal.reason == "writing_back":
                return refusal is not None
            if refusal.reason == "too_large":
                self.left[job.id] = asked = 0
            elif job.stage == "decoding" and asked > to_end:
                asked = to_end  # one page only, which may be granted
            elif self._is_given_up(job, refusal):
                self.hand.abort(job)
            elif self._is(refusal.preempt, "prefilling"):
                self.hand.settle()  # it can be retracted when its pass has ended
            else:
                self._retract(self.hand.jobs[refusal.preempt])
        return False

    def _grow(self, job: Job, asked: int) -> Refused | None:
        """Asks for pages. With them, the request generates as many tokens and computes them all."""
        size = len(job.tokens)
        refusal = _refusal(self.hand.feed(PagesWanted(job.id, size + asked, size)))
        if refusal is None:
            job.tokens += [WORD] * asked
            before, job.committed = job.committed, len(job.tokens)
            job.told = max(job.told, size)
            self.left[job.id] -= asked
            self.hand.decode(job, job.ids, job.tokens, (before, job.committed))
        return refusal

    def _finish(self, job: Job) -> None:
        self.hand.feed(Finished(job.id, self.hand.key(job, job.committed), job.committed))
        del self.hand.jobs[job.id]

    def _retract(self, victim: Job) -> None:
        self.hand.retract(victim)
        self.running.remove(victim.id)
        self.preemptions += 1
        if self.preemptions > self.most:
            raise Stuck(
                f"{self.preemptions} preemptions of {len(self.left)} requests, expected at most "
                f"{self.most}",
                About("request", victim.id),
            )

    def _is_given_up(self, job: Job, refusal: Refused) -> bool:
        """Whether the request lacks pages although it is alone, so that no retraction helps."""
        others = self.hand.pick("prefilling", "idle", "decoding")
        return refusal.reason == "no_pages" and not self.hand.pending and others in ([], [job])


def _refusal(outcomes: list[Outcome]) -> Refused | None:
    return next((item for item in outcomes if isinstance(item, Refused)), None)
