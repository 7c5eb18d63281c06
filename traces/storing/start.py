"""`hicache store start`: a server on this machine, until Ctrl-C or `--stop`.

The folder of its data is that of a command, so it is removed with it, also if the command is
killed. A file in it says what is served; `--stop` finds it there.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hicache import registry
from hicache.core.errors import CallerError

from ..servers.base import SERVERS, Server
from ..terminal.options import OptionRecord, between, choice
from ..terminal.output import folders, temporary_folder
from ..terminal.rows import option

SUMMARY = "start a store on this machine to try it out: mooncake, redis or s3"

_KINDS = registry.names(SERVERS)
_SIZE = 512 << 20  # bytes of values
_LOOK_S = 0.2
_STOP_S = 30.0


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    kind: str = option(", ".join(_KINDS), choice(_KINDS), "STORE", positional=True)
    port: int = option("where to listen (default: a free port)", between(0, 65535), default=0)
    stop: bool = option("end the servers of this kind that you started", default=False)


def run(options: Options, command: str) -> int:
    return _stop(options.kind) if options.stop else _serve(options.kind, options.port)


def _serve(name: str, port: int) -> int:
    """Serves until it is interrupted. Raises CallerError if the server does not start, or ends."""
    kind = registry.load(SERVERS, name)
    with temporary_folder() as folder:
        server = kind.launch(port, folder, _SIZE)
        try:
            (folder / f"serves-{name}").touch()
            print(f"{name} listens on 127.0.0.1{_beyond(server)}. Its address, for --storage:")
            print(f"  '{server.address}'")
            print(f"Ctrl-C ends it, or: hicache store start {name} --stop", flush=True)
            while server.alive():
                time.sleep(_LOOK_S)
        except KeyboardInterrupt:
            print(f"{name} has ended", flush=True)
            return 0
        finally:
            server.stop()
    raise CallerError(f"storage: expected {name} to go on, found that its process ended")


def _beyond(server: Server) -> str:
    """Where else it listens, in words."""
    ports = " and ".join(str(port) for port in server.open_ports())
    return f", and on all interfaces at its data ports {ports}" if ports else ""


def _stop(name: str) -> int:
    """Ends every server of the kind that this user started with this command."""
    found = [
        (process, folder)
        for process, folder in folders()
        if (folder / f"serves-{name}").exists() and _is_ours(process)
    ]
    for process, folder in found:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
        _await(folder)
    if not found:
        raise CallerError(
            f"storage: expected a {name} that hicache store start started, found none"
        )
    print(f"{name} has ended")
    return 0


def _is_ours(process: int) -> bool:
    """Whether the number still is that of such a command, where the system tells."""
    try:
        return b"start" in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except FileNotFoundError:
        return not Path("/proc/self").exists()


def _await(folder: Path) -> None:
    until = time.monotonic() + _STOP_S
    while folder.exists() and time.monotonic() < until:
        time.sleep(_LOOK_S / 4)
