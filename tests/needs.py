"""What some tests need beside this project: its absence leaves them out, with the reason.

PATIENCE_S: the longest wait for another process or thread. A test that needs it has failed; it is
long, so that no verdict depends on how busy the machine is, and below `faulthandler_timeout` in
pyproject.toml, which ends a test that waits without a limit.
"""

import os
import time
from collections.abc import Callable
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Leaves the test out. Where CI is "true", what is missing is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def vllm_python() -> str:
    """The Python of $HICACHE_VLLM. Without it the test is left out, in CI as well: vLLM needs
    gigabytes, and `make check` does not install it."""
    python = os.environ.get("HICACHE_VLLM", "")
    if not python:
        pytest.skip("needs vLLM: set HICACHE_VLLM to its Python (make engines)")
    return python


PATIENCE_S = 600.0


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)
