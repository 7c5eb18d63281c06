"""What some tests need beside this project: its absence leaves them out, with the reason."""

import os
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
