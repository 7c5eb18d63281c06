"""Calls that hang are given up on, and touch nothing afterwards."""

import random
import socket
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from itertools import chain, repeat

import pytest

from hicache.storage.calls import MOST, Call, GivenUp, PlainSocket, Workers

PATIENT_S = 30.0
HASTY_S = 0.01


class Gate:
    """A job that waits until it is let go, then delivers."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.ended = threading.Event()
        self.delivered = False

    def __call__(self, resource: object, call: Call) -> str:
        try:
            self.open.wait(PATIENT_S)
            with call.delivering():
                self.delivered = True
            return "done"
        finally:
            self.ended.set()


def test_while_many_threads_hang_calls_end_at_once() -> None:
    """late: of what was given up, when it ends, and of what never begins."""
    gate, late = Gate(), list[str]()
    workers = Workers("test", object, lambda _: None)
    for _ in range(MOST - 1):
        with pytest.raises(GivenUp):
            workers.run(gate, HASTY_S, lambda: late.append("ended"))
    assert workers.run(lambda resource, call: 2, PATIENT_S) == 2, "others go on"
    with pytest.raises(GivenUp):
        workers.run(gate, HASTY_S, lambda: late.append("ended"))
    assert late == []
    with pytest.raises(GivenUp):  # it would wait for ever
        workers.run(lambda resource, call: 1, None, lambda: late.append("never begun"))
    assert late == ["never begun"]
    gate.open.set()
    assert workers.close(PATIENT_S)
    assert late == ["never begun", *["ended"] * MOST]
    with pytest.raises(GivenUp):
        workers.run(gate, None, lambda: late.append("closed"))
    assert late[-1] == "closed"


def test_closing_gives_up_on_what_is_under_way() -> None:
    ended: list[object] = []
    workers: Workers[str] = Workers("test", lambda: "resource", ended.append)
    gate, begun = Gate(), threading.Event()
    failed: list[bool] = []

    def job(resource: str, call: Call) -> str:
        begun.set()
        return gate(resource, call)

    def use() -> None:
        with pytest.raises(GivenUp):
            workers.run(job, None)
        failed.append(True)

    user = threading.Thread(target=use)
    user.start()
    assert begun.wait(PATIENT_S)
    assert not workers.close(HASTY_S)
    user.join()
    assert failed
    with pytest.raises(GivenUp):
        workers.run(lambda resource, call: 1, None)
    gate.open.set()
    assert workers.join(PATIENT_S)
    assert ended == ["resource"]
    assert not gate.delivered


def test_a_resource_that_cannot_be_made_is_an_error_of_the_call() -> None:
    def make() -> object:
        raise OSError("no memory")

    workers = Workers("test", make, lambda _: None)
    with pytest.raises(OSError, match="no memory"):
        workers.run(lambda resource, call: 1, PATIENT_S)
    assert workers.close(PATIENT_S)


class Caller(threading.Thread):
    """Makes calls whose jobs take drawn times, and waits for each as long as it likes. seen: the
    memory of each call, and what it held when the call ended."""

    def __init__(self, workers: Workers[object], seed: str) -> None:
        super().__init__()
        self.workers, self.draw = workers, random.Random(seed)
        self.seen: list[tuple[bytearray, bytes]] = []
        self.start()

    def run(self) -> None:
        for _ in range(6):
            memory = bytearray(6)
            pauses = self.draw.choices((0.0, 0.0, 0.002, 0.02), k=len(memory))
            steps = self.draw.random() < 0.5

            def job(
                resource: object,
                call: Call,
                memory: bytearray = memory,
                pauses: list[float] = pauses,
                steps: bool = steps,
            ) -> None:
                for at in range(0, len(memory), 2):
                    _pause(pauses[at])
                    with call.delivering():
                        memory[at] = 1
                        _pause(pauses[at + 1])
                        memory[at + 1] = 1
                    if steps:
                        call.step()

            with suppress(GivenUp):
                self.workers.run(job, self.draw.choice((0.001, 0.005, PATIENT_S)))
            self.seen.append((memory, bytes(memory)))


def _pause(seconds: float) -> None:
    if seconds:
        threading.Event().wait(seconds)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_touches_the_memory_of_a_caller_whose_call_has_ended(seed: int) -> None:
    """However jobs, deadlines and the end of all meet: each part of the memory is delivered whole
    before its call ends, or never."""
    workers: Workers[object] = Workers("test", object, lambda _: None)
    callers = [Caller(workers, f"{seed}/{number}") for number in range(4)]
    if seed % 2:
        _pause(0.02)
        assert workers.close(PATIENT_S)
    for caller in callers:
        caller.join()
    assert workers.close(PATIENT_S)
    for memory, data in [pair for caller in callers for pair in caller.seen]:
        assert bytes(memory) == data, "it was touched later"
        assert data[::2] == data[1::2], "a part is not whole"


@pytest.mark.parametrize(("unsent", "time_outs"), [((9, 0), 1.2), (range(9, -1, -1), 2.4)])
def test_a_time_out_begins_anew_while_the_other_side_takes_bytes(
    unsent: Sequence[int], time_outs: float
) -> None:
    """unsent: bytes that wait at each look; then all were taken, and nothing is answered."""
    item, other = socket.socketpair()
    looks, waited = chain(unsent, repeat(0)), list[float]()
    with closing(other), closing(PlainSocket.of(item)) as patient:
        patient.settimeout(8.0)
        patient._unsent = lambda: next(looks)  # type: ignore[method-assign]

        def silent() -> int:
            waited.append(patient.gettimeout() or 0)
            raise TimeoutError

        with pytest.raises(TimeoutError):
            patient._moving(silent)
        assert time_outs - 0.3 < sum(waited) / 8.0 < time_outs
        assert patient.gettimeout() == 8.0
