"""An S3 server that keeps its objects in memory: moto's.

It is chosen because it is maintained and comes with pip alone. Its values are gone when it ends.
"""

from __future__ import annotations

import importlib.util
import sys
import urllib.request
from pathlib import Path

from hicache.core.errors import CallerError

from .base import HOST, Server, free_ports, refuse_taken, spawn

SUMMARY = "an S3 server with one bucket (package moto)"
BUCKET = "kvcache"
_INSTALL = "pip install 'hicache[s3-server]'"


def launch(port: int, folder: Path, size_bytes: int) -> Server:
    """The size is not bounded: moto has no such setting."""
    for name in ("moto", "flask", "flask_cors"):
        if importlib.util.find_spec(name) is None:
            raise CallerError(f"storage: expected the package {name}, found none; {_INSTALL}")
    port = port or free_ports(1)[0]
    refuse_taken(port)
    command = [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)]
    process = spawn(command, folder / "s3.log", port)
    endpoint = f"http://{HOST}:{port}"
    bucket = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
    urllib.request.urlopen(bucket, timeout=10).close()
    keys = "region=us-east-1&access_key=test&secret_key=test"
    return Server(f"s3://{BUCKET}?endpoint={endpoint}&{keys}", [process])
