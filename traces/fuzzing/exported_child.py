"""The child process of `hicache shrink` that runs an exported test, and prints whether it fails.

Takes the file, which the command wrote, and the bug to plant; see commands/shrink.
"""

from __future__ import annotations

import runpy
import sys

from .planting import planted

if __name__ == "__main__":
    found = runpy.run_path(sys.argv[1])
    with planted(sys.argv[2]):
        try:
            for name in found:
                if name.startswith("test_the"):
                    found[name]()
        except AssertionError:
            print("it fails")
        else:
            print("it passes")
