"""The passes of vLLM: what each computed, and how long it took, of which the host; two clocks.

Runs in the process of vLLM (see child) and imports nothing of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class Wall:
    """The time of the machine."""

    now = staticmethod(time.perf_counter)

    def wait(self, seconds: float) -> None:
        """Let so much time pass."""
        time.sleep(max(0.0, seconds))

    yielded = wait


class Processor:
    """The time that this thread has had a core, and that it has waited for a request. What other
    programs take of the machine does not count. It is for kernels that run on this thread."""

    def __init__(self) -> None:
        self._waited = 0.0

    def now(self) -> float:
        """Seconds."""
        return time.thread_time() + self._waited

    def wait(self, seconds: float) -> None:
        """Let so much time pass, at once."""
        self._waited += max(0.0, seconds)

    def yielded(self, seconds: float) -> None:
        """Wait so long for real, as other threads need the time."""
        time.sleep(seconds)
        self._waited += seconds


CLOCKS: dict[str, Callable[[], Any]] = {"wall": Wall, "processor": Processor}


class Passes:
    """Notes every pass of an engine, from outside: it puts itself around the scheduler's two calls
    and the handling of outputs. A pass lasts from its scheduling, or the end of the pass before it
    if that is later, to the end of the step that handed out its tokens.

    found     of each pass: seconds, seconds of the host, chunks of prompts as [start, end] (tokens
              before start are cached), decoding sequences, and the rows that these attend to.
    admitted  when each request was first in a pass, by its name.
    """

    def __init__(self, engine: Any, scheduler: Any, now: Callable[[], float]) -> None:
        self.found: list[list[Any]] = []
        self.admitted: dict[str, float] = {}
        self._now, self._scheduler = now, scheduler
        self._ended = 0.0
        self._ahead: list[tuple[float, list[Any]]] = []  # scheduled, not handed out
        self._updated = 0
        self._host = 0.0
        self._around(scheduler, "schedule", self._scheduled)
        self._around(scheduler, "update_from_output", self._handed_out)
        self._around(engine.output_processor, "process_outputs", lambda began, answer: None)

    def _around(self, owner: Any, name: str, then: Callable[[float, Any], None]) -> None:
        inner = getattr(owner, name)

        def call(*given: Any, **named: Any) -> Any:
            began = self._now()
            answer = inner(*given, **named)
            self._host += self._now() - began
            then(began, answer)
            return answer

        setattr(owner, name, call)

    def _scheduled(self, began: float, output: Any) -> None:
        counts = output.num_scheduled_tokens
        chunks, decoding, context = [], 0, 0
        starts = {one.req_id: one.num_computed_tokens for one in output.scheduled_new_reqs}
        for name in starts:
            self.admitted.setdefault(name.partition("-")[0], began)  # vLLM adds to a name
        cached = output.scheduled_cached_reqs
        starts |= zip(cached.req_ids, cached.num_computed_tokens, strict=True)
        for name, count in counts.items():
            start = starts[name]
            if start >= self._scheduler.requests[name].num_prompt_tokens:
                decoding += count
                context += start + count
            else:
                chunks.append([start, start + count])
        self._ahead.append((began, [chunks, decoding, context]))

    def _handed_out(self, began: float, answer: Any) -> None:
        self._updated += 1

    def stepped(self) -> None:
        """A step of the engine has ended."""
        now, host = self._now(), self._host
        self._host = 0.0
        updated, self._updated = self._updated, 0
        for _ in range(updated):
            began, what = self._ahead.pop(0)
            if what[0] or what[1]:
                self.found.append([now - max(began, self._ended), host, *what])
            self._ended = now

    def take(self) -> list[list[Any]]:
        """The passes since the last call."""
        found, self.found = self.found, []
        self.admitted.clear()
        return found
