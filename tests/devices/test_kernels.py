"""The copy kernel without a GPU, by Triton's interpreter, which is chosen for a whole process.

Speed is measured only on a GPU (docs/devices.md).
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_copies_are_exact_under_the_interpreter() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/devices/interpreted.py"],
        cwd=Path(__file__).resolve().parents[2],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d passed", done.stdout)
    assert "skipped" not in done.stdout
