"""A Redis server that keeps its values in memory, and evicts the least recently used one."""

from __future__ import annotations

from pathlib import Path

from .base import HOST, Server, free_ports, program, refuse_taken, spawn

SUMMARY = "a Redis server (program redis-server)"
_INSTALL = "apt-get install redis-server, or what your system calls it"


def launch(port: int, folder: Path, size_bytes: int) -> Server:
    server = program("redis-server", _INSTALL)
    port = port or free_ports(1)[0]
    refuse_taken(port)
    command = [server, "--bind", HOST, "--port", str(port), "--dir", str(folder)]
    command += ["--save", "", "--appendonly", "no", "--maxmemory", str(size_bytes)]
    command += ["--maxmemory-policy", "allkeys-lru", "--daemonize", "no"]
    process = spawn(command, folder / "redis.log", port)
    return Server(f"redis://{HOST}:{port}/0", [process])
