"""Servers of stores on this machine to test with: Mooncake, Redis and S3.

Each listens on 127.0.0.1, keeps its data in a folder that its caller gives, and ends with this
process. Mooncake's clients also listen at two data ports each (12300 to 17000) on all interfaces,
which no setting changes; MC_TCP_BIND_ADDRESS was tried.
"""

import importlib.util
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen

from hicache.core.errors import CallerError

HOST = "127.0.0.1"
BUCKET = "kvcache"
S3_PAGE = 100  # keys in a list
_START_S = 20.0
_STOP_S = 10.0
_LEASE = "3s"  # for so long Mooncake does not evict a value that was read
_CLIENT_S = 30  # after so long Mooncake's master forgets a client that died, with its values


@dataclass(slots=True)
class Server:
    """address: for `--storage`. processes: the one that clients ask first is the first."""

    address: str
    processes: list[Popen[bytes]] = field(default_factory=list)

    def stop(self) -> None:
        """End the processes, those that started last first."""
        for process in reversed(self.processes):
            end(process)


def redis(port: int, folder: Path, size_bytes: int) -> Server:
    """Redis, which keeps its values in memory, and evicts the least recently used one."""
    server = shutil.which("redis-server")
    if server is None:
        raise missing("the program redis-server", "apt-get install redis-server, or the like")
    command = [server, "--bind", HOST, "--port", str(port), "--dir", str(folder)]
    command += ["--save", "", "--appendonly", "no", "--maxmemory", str(size_bytes)]
    command += ["--maxmemory-policy", "allkeys-lru", "--daemonize", "no"]
    return Server(f"redis://{HOST}:{port}/0", [spawn(command, folder / "redis.log", port)])


def s3(port: int, folder: Path, size_bytes: int) -> Server:
    """moto, which is maintained and comes with pip alone. It keeps its objects in memory, as many
    as come: it has no setting for the size."""
    for name in ("moto", "flask", "flask_cors"):
        if importlib.util.find_spec(name) is None:
            raise missing(f"the package {name}", "pip install 'hicache[s3-server]'")
    command = ["env", f"MOTO_S3_DEFAULT_MAX_KEYS={S3_PAGE}"]
    command += [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)]
    process = spawn(command, folder / "s3.log", port)
    endpoint = f"http://{HOST}:{port}"
    bucket = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
    urllib.request.urlopen(bucket, timeout=10).close()
    keys = "region=us-east-1&access_key=test&secret_key=test"
    return Server(f"s3://{BUCKET}?endpoint={endpoint}&{keys}", [process])


def mooncake(port: int, folder: Path, size_bytes: int) -> Server:
    """A Mooncake master, and a client that holds the values."""
    master = mooncake_program("mooncake_master")
    [metrics] = free_ports(1)
    command = [master, f"--rpc_address={HOST}", f"--rpc_port={port}"]
    command += [f"--metrics_host={HOST}", f"--metrics_port={metrics}"]
    command += [f"--default_kv_lease_ttl={_LEASE}", f"--client_ttl={_CLIENT_S}"]
    server = Server(f"mooncake://{HOST}:{port}?metrics={metrics}")
    try:
        server.processes.append(spawn(command, folder / "master.log", port))
        server.processes.append(mooncake_client(port, folder, size_bytes))
    except BaseException:
        server.stop()
        raise
    return server


def mooncake_client(master: int, folder: Path, size_bytes: int) -> Popen[bytes]:
    """The process that holds the values. master: its port."""
    [port] = free_ports(1)
    command = [mooncake_program("mooncake_client"), f"--host={HOST}", f"--port={port}"]
    command += ["--metadata_server=P2PHANDSHAKE", f"--master_server_address={HOST}:{master}"]
    command += [f"--global_segment_size={size_bytes}", "--local_buffer_size=16777216"]
    return spawn(command, folder / "client.log", port)


def mooncake_program(name: str) -> str:
    """A program of the package. pip does not always keep that it is executable."""
    spec = importlib.util.find_spec("mooncake")
    if spec is None or spec.origin is None:
        how = "pip install 'hicache[mooncake]' (and the Debian packages libibverbs1 and libnuma1)"
        raise missing("the package mooncake", how)
    program = Path(spec.origin).parent / name
    if not os.access(program, os.X_OK):
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


# By the scheme of their addresses: port, folder, bytes of values. Each raises CallerError if a
# program is missing or does not start.
SERVERS: dict[str, Callable[[int, Path, int], Server]] = {
    "mooncake": mooncake,
    "redis": redis,
    "s3": s3,
}


def missing(what: str, how: str) -> CallerError:
    return CallerError(f"storage: expected {what}, found none; {how}")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for item in sockets:
            item.bind((HOST, 0))
        return [socket.getsockname()[1] for socket in sockets]
    finally:
        for value in sockets:
            value.close()


def spawn(command: Sequence[str], log: Path, port: int) -> Popen[bytes]:
    """Start a process and wait until it listens. It ends when this process does, also when this one
    is killed. Raises CallerError if it does not start."""
    setpriv = shutil.which("setpriv")
    tied = [setpriv, "--pdeathsig", "KILL", *command] if setpriv else list(command)
    with log.open("wb") as output:
        process = subprocess.Popen(
            tied,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us; we end the process
        )
    until = time.monotonic() + _START_S
    try:
        while process.poll() is None and time.monotonic() < until:
            with suppress(OSError), socket.create_connection((HOST, port), 0.2):
                return process
            time.sleep(0.02)
    except BaseException:
        end(process)
        raise
    end(process)
    lines = log.read_text(errors="replace").strip().splitlines()
    raise CallerError(
        f"storage: expected {Path(command[0]).name} to listen on {HOST}:{port}, found that it did "
        f"not ({lines[-1][:200] if lines else f'exit code {process.returncode}'})"
    )


def end(process: Popen[bytes]) -> None:
    """SIGTERM, and SIGKILL if that does not help. Also ends a process that is stopped."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            process.terminate()
            process.send_signal(signal.SIGCONT)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
