"""Real time. Everything else gets it from here, so a test can give another one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Clock(NamedTuple):
    """now_s: seconds of a clock that never goes back. sleep: lets so many seconds pass."""

    now_s: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep
