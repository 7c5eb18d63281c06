"""The longest wait for another process or thread. A test that needs it has failed; it is long, so
that no verdict depends on how busy the machine is.

Below `faulthandler_timeout` in pyproject.toml, which ends a test that waits without a limit.
"""

import time
from collections.abc import Callable

PATIENCE_S = 600.0


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)
