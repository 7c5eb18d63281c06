"""Calls that hang are given up on, and touch nothing afterwards. Connections to S3: kept, and ended
by the server."""

import random
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, repeat

import pytest

from hicache.storage.base import Status
from hicache.storage.calls import MOST, Call, PlainSocket, Workers
from tests.contract.rigs_stores import usable, value_of

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

    def ended() -> None:
        time.sleep(0.1)  # `close` waits for it
        late.append("ended")

    for _ in range(MOST - 1):
        assert workers.run(gate, HASTY_S, "lost", ended) == "lost"
    assert workers.run(lambda resource, call: 2, PATIENT_S, 0) == 2, "others go on"
    assert workers.run(gate, HASTY_S, "lost", ended) == "lost"
    assert late == []
    assert workers.run(lambda *_: 1, None, 0, lambda: late.append("never begun")) == 0
    assert late == ["never begun"]
    gate.open.set()
    assert workers.close(PATIENT_S)
    assert late == ["never begun", *["ended"] * MOST]
    assert workers.run(gate, None, "lost", lambda: late.append("closed")) == "lost"
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
        failed.append(workers.run(job, None, "lost") == "lost")

    user = threading.Thread(target=use)
    user.start()
    assert begun.wait(PATIENT_S)
    assert not workers.close(HASTY_S)
    user.join()
    assert failed == [True]
    assert workers.run(lambda resource, call: 1, None, 0) == 0
    gate.open.set()
    assert workers.join(PATIENT_S)
    assert ended == ["resource"]
    assert not gate.delivered


def test_a_resource_that_cannot_be_made_is_an_error_of_the_call() -> None:
    def make() -> object:
        raise OSError("no memory")

    workers = Workers("test", make, lambda _: None)
    with pytest.raises(OSError, match="no memory"):
        workers.run(lambda resource, call: 1, PATIENT_S, 0)
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

            self.workers.run(job, self.draw.choice((0.001, 0.005, PATIENT_S)), None)
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


VALUE = value_of(bytes(range(256)) * 1000, 64, 90_000)


class Server(ThreadingHTTPServer):
    """Keeps what it is told, by request line. ends: it ends each connection after an answer, and
    does not say so before."""

    ends = False

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        self.connections = 0
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        self.server.connections += 1
        super().setup()

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies[f"{self.headers['Host']} {self.path}"] = body
        text = b"<Code>QuotaExceeded</Code>".ljust(9000) if "full" in self.path else b""
        self.send_response(400 if text else 200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        self.close_connection = self.server.ends

    def do_GET(self) -> None:
        """Half of what was announced, or chunks."""
        chunks = "chunks" in self.path
        self.send_response(200)
        self.send_header(
            *(("Transfer-Encoding", "chunked") if chunks else ("Content-Length", "10"))
        )
        self.end_headers()
        self.wfile.write(b"5\r\n12345\r\n0\r\n\r\n" if chunks else b"12345")
        self.close_connection = True

    def log_message(self, *value: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    usable("s3")
    with closing(Server()) as server:
        yield server


def put(server: Server, *urls: str) -> None:
    from hicache.storage.backends.s3 import Connections

    with closing(Connections(10.0)) as connections:
        for url in urls:
            assert connections.request("PUT", url, VALUE) is Status.DONE


def test_a_body_of_another_length_is_corrupt_and_one_that_was_cut_is_none(server: Server) -> None:
    from hicache.storage.backends.s3 import Connections

    with closing(Connections(10.0)) as connections:

        def get(path: str, size: int) -> Status:
            return connections.request("GET", f"{server.url}/b/{path}", value_of(bytes(size)))

        assert {get("a", 9), get("a", 11), get("chunks", 4), get("chunks", 6)} == {Status.CORRUPT}
        assert get("chunks", 5) is Status.DONE
        with pytest.raises(ConnectionError):
            get("a", 10)


def test_a_connection_is_kept(server: Server) -> None:
    put(server, f"{server.url}/bucket/a?X=1", f"{server.url}/bucket/b")
    assert list(server.bodies.values()) == [b"".join(VALUE)] * 2
    host = server.url.removeprefix("http://")
    assert set(server.bodies) == {f"{host} /bucket/a?X=1", f"{host} /bucket/b"}
    assert server.connections == 1


def test_a_connection_that_the_server_has_ended_is_made_again(server: Server) -> None:
    server.ends = True
    put(server, *(f"{server.url}/bucket/{number}" for number in range(3)))
    assert len(server.bodies) == server.connections == 3


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("507 Insufficient Storage: ", Status.FULL),
        ("400 Bad Request: <Error><Code>QuotaExceeded</Code></Error>", Status.FULL),
        ("500 Internal Error: the number 507", Status.FAILED),
    ],
)
def test_a_full_store_is_told_by_its_answer_alone(message: str, status: Status) -> None:
    usable("s3")
    from hicache.storage.backends.s3 import Refused, _status

    assert _status(Refused(message)) is status
    assert _status(OSError("507")) is Status.FAILED


def test_a_refusal_has_its_status_and_reason(server: Server) -> None:
    from hicache.storage.backends.s3 import Connections

    with closing(Connections(10.0)) as connections:
        with pytest.raises(OSError, match=r"400 Bad Request: <Code>QuotaExceeded"):
            connections.request("PUT", f"{server.url}/full", VALUE)
        status = connections.request("PUT", f"{server.url}/bucket/a", VALUE)
        assert status is Status.DONE, "the rest of a long refusal is nobody's answer"
