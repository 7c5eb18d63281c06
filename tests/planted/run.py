"""`python -m tests.planted.run BUG COMMAND ...`: the hicache command with a bug planted, in the
processes that it starts, too, which import this module again."""

import sys
from contextlib import ExitStack

from tests.planted import planted
from traces.cli import main

_planted = ExitStack()
_planted.enter_context(planted(sys.argv[1]))

if __name__ == "__main__":
    sys.exit(main(sys.argv[2:]))
