"""`hicache store start`: a server while the command runs, and nothing of it afterwards."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hicache.core.errors import CallerError
from hicache.storage.address import open_storage, parse
from hicache.storage.base import Status, StorageOptions
from tests.needs import missing
from tests.patience import PATIENCE_S
from traces.cli import main
from traces.servers import base, redis

from .rig import Capsys, Patch


def begun(folder: Path, *options: str) -> tuple[subprocess.Popen[str], str]:
    """The command, with its temporary files in a folder, and the address that it printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hicache", "store", "start", "redis", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(folder)},
    )
    assert process.stdout
    first = process.stdout.readline()
    if not first:
        missing(process.communicate()[1])
    address = process.stdout.readline().strip().strip("'")
    process.stdout.readline()
    return process, address


def open_until_it_fails(address: str) -> None:
    """The system ends the server of a command that was killed, in its own time. While it ends, it
    may still take a connection and drop it."""
    while True:
        try:
            open_storage(parse(address), StorageOptions(timeout_s=60.0)).close()
        except CallerError as error:
            if "reset by peer" not in str(error):
                raise


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("how", ["signal", "stop", "kill"])
def test_a_server_ends_with_its_command(
    how: str, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    process, address = begun(tmp_path)
    with process:
        store = open_storage(parse(address), StorageOptions(timeout_s=60.0))
        assert store.write(["k"], [(memoryview(b"v"),)]) == [Status.DONE]
        store.close()
        if how == "stop":
            monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
            assert main(["store", "start", "redis", "--stop"]) == 0
            assert capsys.readouterr().out == "redis has ended\n"
            assert main(["store", "start", "redis", "--stop"]) == 2
            assert "found none" in capsys.readouterr().err
        else:
            process.send_signal(signal.SIGINT if how == "signal" else signal.SIGKILL)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert err == ""
    if how == "kill":
        assert process.returncode == -signal.SIGKILL
    else:
        assert (process.returncode, out) == (0, "redis has ended\n")
        assert not list(tmp_path.iterdir())
    with pytest.raises(CallerError, match="Connection refused"):
        open_until_it_fails(address)


def test_a_missing_program_and_a_taken_port_are_one_line(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    with socket.socket() as taken:
        taken.bind((base.HOST, 0))
        taken.listen()
        with pytest.raises(CallerError, match=r"expected a free port of 127\.0\.0\.1, found"):
            base.refuse_taken(taken.getsockname()[1])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["store", "start", "redis"]) == 2
    assert capsys.readouterr().err == (
        "hicache: storage: expected the program redis-server, found none; "
        "apt-get install redis-server, or what your system calls it\n"
    )
    assert main(["store", "start", "redis", "--port", "70000"]) == 2


def test_a_program_that_does_not_listen_is_told_with_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match=r"did not \(no such thing\)"):
        base.spawn(
            [sys.executable, "-c", "raise SystemExit('no such thing')"],
            tmp_path / "log",
            base.free_ports(1)[0],
        )


LISTENERS = """
import socket
for family, host in ((2, "127.0.0.1"), (2, "0.0.0.0"), (10, "::1"), (10, "::")):
    try:
        one = socket.create_server((host, 0), family=family)
    except OSError:  # no IPv6 here
        continue
    print(host, one.getsockname()[1])
    globals()[host] = one
print("all", 0, flush=True)
input()
"""


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the system does not tell")
def test_ports_that_listen_beyond_this_machine_are_told(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    """As those of Mooncake do, whatever is asked of it."""
    command = [sys.executable, "-c", LISTENERS]
    found: dict[str, int] = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        while "all" not in found:
            host, port = process.stdout.readline().decode().split()
            found[host] = int(port)
        server = base.Server("redis://127.0.0.1:1/0", [process])
        beyond = sorted(port for host, port in found.items() if host in ("0.0.0.0", "::"))
        assert server.open_ports() == beyond
        process.kill()
    monkeypatch.setattr(redis, "launch", lambda port, folder, size_bytes: server)
    monkeypatch.setattr(base.Server, "open_ports", lambda self: beyond)
    assert main(["store", "start", "redis"]) == 2, "its process has ended"
    said = " and ".join(map(str, beyond))
    assert f"listens on 127.0.0.1, and on all interfaces at its data ports {said}." in (
        capsys.readouterr().out
    )
