"""Connections to S3: kept, and ended by the server."""

import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hicache.storage.base import Status
from tests.contract.rigs_stores import usable, value_of

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
