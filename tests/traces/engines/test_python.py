"""Which Python has vLLM: one line, with what to do, where there is none."""

import sys
from pathlib import Path

import pytest

from hicache.core.errors import CallerError
from traces.engines.vllm import python_of


def test_a_python_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match=r"found no file .*absent; make engines"):
        python_of(str(tmp_path / "absent"))


def test_a_python_without_vllm_is_named() -> None:
    with pytest.raises(CallerError, match=r"found none in .*; make engines"):
        python_of(sys.executable)
