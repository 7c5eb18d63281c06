"""The engine on pipeline stages: as many micro-batches as stages, each with one pass at most.

A micro-batch has its turn when its last pass has left the last stage and the first stage is free;
of several, the one that has waited longest. So a pass runs on a stage when it has been sent there
and the one before it has left (see forward). Its steps are those of the engine; what needs the end
of its pass is done at once. A sequence whose pages another needs while it is in a pass is retracted
when that pass ends. Decode steps are not combined.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from hicache.core.errors import CallerError

from ..options import EngineOptions
from ..workload import Workload
from .engine import Engine
from .prefill import Batch
from .running import Platform
from .sequence import MicroBatch, Sequence


@dataclass(frozen=True, slots=True)
class StageUse:
    """computing_ns: how long each stage has computed. under_way_ns: how long there was a pass."""

    computing_ns: tuple[int, ...]
    under_way_ns: int


@dataclass(slots=True)
class _Pass:
    """A pass under way. steps: of decoding. durations: on each stage. left_ns: when it left each,
    so far."""

    turn: MicroBatch
    chunks: Batch
    steps: int
    launched_ns: int
    durations: list[int]
    send_ns: int
    left_ns: list[int] = field(default_factory=list)


class Pipeline(Engine):
    """See the module."""

    def __init__(
        self,
        workload: Workload,
        platform: Platform,
        options: EngineOptions,
        ended: Callable[[Sequence], None],
    ) -> None:
        if platform.relay is not None:
            raise CallerError("pp: expected 1 where prompts are handed over, found more stages")
        super().__init__(workload, platform, options, ended)
        stages = range(platform.forward.stages)
        self._idle = deque(self._running.batches)  # those that have waited longest come first
        self._left_ns = [0 for _ in stages]  # when the pass before left each stage
        self._computing_ns = [0 for _ in stages]
        self._under_way_ns = 0
        self._began_ns = 0  # when there was none

    @property
    def use(self) -> StageUse:
        """The use of the stages until the last pass ended."""
        return StageUse(tuple(self._computing_ns), self._under_way_ns)

    def _boundary(self) -> None:
        if not self._idle:
            return
        self._take()
        for batch in list(self._idle):
            self._give_turn(batch)
            self._compose()
            if self._busy:
                return

    def _give_turn(self, batch: MicroBatch) -> None:
        self._running.give_turn(batch)
        batch.pause(self._clock.now_ns)

    def _launch(self) -> None:
        batch, chunks = self._running.turn, self._prefills.batch
        decoding = len(batch.decode)
        if not chunks and not decoding:
            return
        if len(self._idle) == len(self._running.batches):
            self._began_ns = self._clock.now_ns
        self._idle.remove(batch)
        self._busy = batch.busy = True
        alone = bool(chunks) and bool(decoding) and not self._prefills.with_decoding
        begun = _Pass(batch, chunks, int(not alone), self._clock.now_ns, [], 0)
        self._forward.launch(
            chunks,
            0 if alone else decoding,
            0 if alone else batch.decode.context,
            lambda: self._last_left(begun),
            lambda stage: self._left(begun, stage),
        )
        begun.durations, begun.send_ns = self._forward.durations, self._forward.send_ns

    def _left(self, item: _Pass, stage: int) -> None:
        """A pass has left a stage, which is not the last."""
        item.left_ns.append(self._clock.now_ns)
        if not stage:
            self._busy = False
            self._boundary()

    def _last_left(self, item: _Pass) -> None:
        now_ns, batch = self._clock.now_ns, item.turn
        item.left_ns.append(now_ns)
        batch.busy, batch.waits_ns = False, now_ns
        self._idle.append(batch)
        self._running.give_turn(batch)
        elapsed_ns = now_ns - item.launched_ns
        self._running.decoded(item.steps, elapsed_ns)
        self._prefills.ended(item.chunks, elapsed_ns, self._stood_still(item))
        self._running.finish_ended()
        self._running.retract_wanted()
        if len(self._idle) == len(self._running.batches):
            self._under_way_ns += now_ns - self._began_ns
        if not self._busy:
            self._boundary()
        else:
            self._controller.start()

    def _stood_still(self, item: _Pass) -> int:
        """How long a pass that has left the last stage waited for loads: on each stage, from when
        it was there and the pass before it was not, but for what it computed."""
        waited_ns, there_ns = 0, item.launched_ns
        for stage, (duration_ns, left_ns) in enumerate(
            zip(item.durations, item.left_ns, strict=True)
        ):
            waited_ns += left_ns - max(there_ns, self._left_ns[stage]) - duration_ns
            self._left_ns[stage] = left_ns
            self._computing_ns[stage] += duration_ns
            there_ns = left_ns + item.send_ns
        return waited_ns
