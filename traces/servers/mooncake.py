"""A Mooncake master, and a client that holds the values.

The two data ports of each Mooncake client (12300 to 17000) listen on all interfaces. No setting
changes that; MC_TCP_BIND_ADDRESS was tried.
"""

from __future__ import annotations

import importlib.util
import os
import stat
from pathlib import Path
from subprocess import Popen

from hicache.core.errors import CallerError

from .base import HOST, Server, free_ports, refuse_taken, spawn

SUMMARY = "a Mooncake master and one client that holds values (package mooncake)"
_INSTALL = "pip install 'hicache[mooncake]' (and the Debian packages libibverbs1 and libnuma1)"
_LEASE = "500ms"  # for so long a value that was read is not evicted
_CLIENT_S = 30  # after so long the master forgets a client that died, with its values


def launch(port: int, folder: Path, size_bytes: int) -> Server:
    master, client = programs()
    ports = free_ports(3)
    port = port or ports[0]
    refuse_taken(port)
    _, metrics, control = ports
    server = Server(f"mooncake://{HOST}:{port}?metrics={metrics}")
    try:
        server.processes.append(
            spawn(
                [
                    *(master, f"--rpc_address={HOST}", f"--rpc_port={port}"),
                    *(f"--metrics_host={HOST}", f"--metrics_port={metrics}"),
                    *(f"--default_kv_lease_ttl={_LEASE}", f"--client_ttl={_CLIENT_S}"),
                ],
                folder / "master.log",
                port,
            )
        )
        server.processes.append(launch_client(client, port, control, folder, size_bytes))
    except BaseException:
        server.stop()
        raise
    return server


def launch_client(
    client: str, port: int, control: int, folder: Path, size_bytes: int
) -> Popen[bytes]:
    """The process that holds the values of the master at `port`."""
    command = [client, f"--host={HOST}", f"--port={control}", "--metadata_server=P2PHANDSHAKE"]
    command += [f"--master_server_address={HOST}:{port}", f"--global_segment_size={size_bytes}"]
    return spawn([*command, "--local_buffer_size=16777216"], folder / "client.log", control)


def programs() -> list[str]:
    """The programs of the package. pip does not always keep that they are executable."""
    found = importlib.util.find_spec("mooncake")
    if found is None or found.origin is None:
        raise CallerError(f"storage: expected the package mooncake, found none; {_INSTALL}")
    here = Path(found.origin).parent
    both = [here / "mooncake_master", here / "mooncake_client"]
    for one in both:
        if not os.access(one, os.X_OK):
            one.chmod(one.stat().st_mode | stat.S_IXUSR)
    return [str(one) for one in both]
