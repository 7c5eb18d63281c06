"""python -m tests.storage.outages [--histories N] [--real N] [--seed N]: the laws of outages in so
many drawn histories with simulated faults, and with servers that are really stopped and killed."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from . import laws, servers


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.storage.outages", description=__doc__)
    parser.add_argument("--histories", type=int, default=5000)
    parser.add_argument("--real", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for play, count in ((laws, options.histories), (servers, options.real)):
            if count:
                print(dict(play.play_many(count, options.seed, Path(folder))), flush=True)


if __name__ == "__main__":
    main()
