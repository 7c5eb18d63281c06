"""A run of `hicache prove --engine vllm`: family by family, and the files of failures."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from hicache.core.errors import CallerError
from traces.engines.vllm import Vllm

from ..terminal.output import write_whole
from ..terminal.progress import counting, progress
from ..terminal.streams import print_error
from .playing import CODES, OWN, WRONG_ANSWER, Failure, Judged, Player
from .report import Total
from .rule import ACCEPTED, LEAST_BOUND
from .script import script
from .sides import TOP

_THREADS = 1


@dataclass(frozen=True)
class Work:
    """requests: of each family; 0 for no end but `seconds`, of all families together. folder: for
    the files of failures."""

    python: str
    requests: int
    seconds: int
    seed: int
    faults: bool
    plant: str
    folder: str


def run(work: Work, total: Total) -> None:
    """Judge every family. Ctrl-C keeps what is done."""
    begun = time.monotonic()
    share = work.seconds / len(total.families)
    with tempfile.TemporaryDirectory(prefix="hicache-prove-") as place:
        for number, family in enumerate(total.families):
            until = begun + (number + 1) * share if work.seconds else 0.0
            label = f"prove {family}"
            with progress(label, work.requests) if work.requests else counting(label) as line:

                def shown(found: Judged, until: float = until, line: object = line) -> bool:
                    total.families[found.family] = found
                    total.seconds = time.monotonic() - begun
                    line(found.requests)  # type: ignore[operator]
                    return bool(until) and time.monotonic() >= until

                start = partial(
                    Vllm,
                    work.python,
                    family,
                    folder=f"{place}/models",
                    threads=_THREADS,
                    pinned=False,
                    quick=True,
                )
                player = Player(
                    family,
                    start,
                    Path(place),
                    seed=work.seed,
                    faults=work.faults,
                    plant=work.plant,
                    requests=work.requests,
                    shown=shown,
                )
                total.families[family] = player.found
                try:
                    player.play()
                except KeyboardInterrupt:
                    total.interrupted = True
                    print_error("interrupted; what was judged so far:")
            _keep(work, total, family)
            if total.interrupted:
                break
    total.seconds = time.monotonic() - begun


def _keep(work: Work, total: Total, family: str) -> None:
    """Write what was asked until a failure, and of a wrong answer of vLLM's own a script."""
    found = total.families[family]
    for number, failure in enumerate(found.failures):
        base = f"{work.folder}/vllm-{family}-{work.seed}-{failure.kind}-{number}"
        files = {f"{base}.json": _tape(work, found, failure)}
        if failure.kind == WRONG_ANSWER and failure.side == OWN and not work.plant:
            last = failure.request - sum(len(one) for one in failure.played[:-1] if one != "drop")
            allowed = ACCEPTED * max(found.bound, LEAST_BOUND)
            files[f"{base}.py"] = script(failure, family, last, allowed, TOP)
        written = total.files.setdefault((family, number), [])
        for path, text in files.items():
            try:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, [text])
                written.append(path)
            except (CallerError, OSError) as error:
                print(f"hicache: {error}; the run goes on", file=sys.stderr)


def _tape(work: Work, found: Judged, failure: Failure) -> str:
    played = [
        one if one == "drop" else [[request._asdict(), list(prompt)] for request, prompt in one]
        for one in failure.played
    ]
    said = asdict(failure) | {"played": played, "family": found.family, "seed": work.seed}
    return json.dumps(said | {"plant": work.plant, "code": CODES[failure.kind]}) + "\n"
