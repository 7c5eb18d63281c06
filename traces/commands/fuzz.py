"""`hicache fuzz`: draws sequences from seeds, checks each, keeps failing ones, and replays them."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count, islice, takewhile
from pathlib import Path

from hicache.core.errors import CallerError
from hicache.files import text_of
from invariants.fuzz.sequence import MOST_BYTES, OURS, loads
from invariants.production import BEGIN

from .. import plugins
from ..fuzzing import core, engines
from ..fuzzing.results import Tally, Target, documented, hunt, show
from ..fuzzing.session import Session, engine_of
from ..terminal import options as read
from ..terminal.options import OptionRecord, option
from ..terminal.output import check_folder, check_outputs, write_json
from ..terminal.signals import INTERRUPTED
from ..terminal.streams import command_line

SECONDS = 60
MOST_OPERATIONS = 100_000  # a sequence of this length can still be read


def setting(text: str) -> tuple[str, str]:
    """KEY=VALUE of a configuration."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"expected KEY=VALUE, such as page=4, found {text!r}")
    return key.replace("-", "_"), value


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    """target: empty for that of --replay, or hicache. seconds, seed, jobs: None means the default
    that the help describes."""

    target: str = option(
        "hicache (the default), sglang, vllm, or path.py:Class, a cache of your own",
        read.name,
        "TARGET",
        positional=True,
        optional=True,
        default="",
    )
    seconds: int | None = option(
        f"stop after this many seconds (default: {SECONDS}; none with --sequences)",
        read.at_least(1),
        "S",
    )
    sequences: int | None = option("stop after N sequences", *read.COUNT)
    seed: int | None = option(
        "seed of the first sequence; each further one has the next seed (default: from the commit)",
        read.at_least(0),
    )
    operations: int = option(
        f"operations in a sequence, at most {MOST_OPERATIONS}",
        read.between(1, MOST_OPERATIONS),
        "N",
        default=120,
    )
    config: tuple[tuple[str, str], ...] = option(
        "fix one setting that is otherwise drawn, such as page=4; may be repeated",
        setting,
        "KEY=VALUE",
        several=True,
        default=(),
    )
    first: bool = option("stop at the first failure that is not known", default=False)
    replay: str | None = option(
        "play this sequence, or script of an engine's calls, and nothing else", *read.FILE
    )
    source: str | None = option(
        "the folder of an engine: a checkout, or what pip install --target made", read.name, "DIR"
    )
    jobs: int | None = option(
        "worker processes of hicache (default: one for each core)", *read.COUNT
    )
    output: str = option(
        "folder for the files of each failure",
        read.name,
        "FOLDER",
        short="-o",
        default="fuzz-failures",
    )
    json: str | None = option(
        "also write the results to this file as JSON; - is stdout", *read.OUTPUT
    )


def run(options: Options, command: str) -> int:
    """Returns 0, or the exit code of the worst failure that is not known."""
    check_outputs({"sequence": options.replay, **plugins.files()}, json=options.json)
    if options.replay:
        return _replay(options, options.replay, command)
    check_folder(options.output, f"--output {options.output}")
    seed = commit_seed() if options.seed is None else options.seed
    stream = sys.stderr if options.json == "-" else sys.stdout
    name = options.target or OURS
    with ExitStack() as stack:
        target = _target(name, options, seed, stack)
        words = ["hicache", "fuzz", *([name] if options.target else []), "--seed", str(seed)]
        print(command_line(words), file=stream, flush=True)
        tally, seeds = Tally(), _seeds(seed, options)
        complete, lost = hunt(target, seeds, tally, options.output, options.first)
    code = lost or tally.code() or (0 if complete else INTERRUPTED)
    settings: dict[str, object] = {"target": name, "seed": seed}
    settings |= {"operations a sequence": options.operations, **dict(options.config)}

    show(tally, settings, target, stream)
    if options.json:
        head = _head("hicache-fuzz-report", command, code) | {"complete": complete}
        write_json(options.json, head | documented(tally, settings, target))
    return code


def _target(name: str, options: Options, seed: int, stack: ExitStack) -> Target:
    """The target, ready to play. Raises CallerError."""
    if name != OURS:
        if options.jobs is not None:
            raise CallerError(f"--jobs: expected none for {name}, which has one process")
        session = stack.enter_context(Session(engine_of(name, options.source)))
        session.start()
        fixed = engines.configured(session, options.config)
        return engines.Process(session, name, options.operations, fixed, options.output)
    if options.source is not None:
        raise CallerError(f"--source: expected none for {OURS}; run a checkout's own command")
    items = tuple(core.configured(options.config).items())
    what = options.operations, items, options.output, plugins.environment()
    return core.Work(*what, options.jobs or 0, hash_seed=seed)


def _seeds(first: int, options: Options) -> Iterator[int]:
    """Seeds until the budget is spent. A sequence that has started is played to its end."""
    limit = options.seconds or (float("inf") if options.sequences else SECONDS)
    end = time.monotonic() + limit
    return takewhile(lambda _: time.monotonic() < end, islice(count(first), options.sequences))


def _head(kind: str, command: str, code: int) -> dict[str, object]:
    return {"format": kind, "version": 2, "command": command, "exit_code": code}


def commit_seed() -> int:
    """A seed from the hash of the current commit; 0 outside git.

    Each commit tries other sequences, and each run can be repeated.
    """
    words = ["git", "-C", str(Path(__file__).resolve().parent), "rev-parse", "HEAD"]
    try:
        git = subprocess.run(words, capture_output=True, text=True, check=True)
        return int(git.stdout.strip()[:12], 16)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return 0


# -- one sequence


def _replay(options: Options, path: str, command: str) -> int:
    """Plays one sequence exactly, or runs a script, and prints the result."""
    text = text_of(path, "sequence of hicache fuzz", MOST_BYTES, "copy it anew")
    script = path.endswith(".py")
    if script:
        match = re.match('"""([a-z-]+)==', text)
        if match is None:
            expected = "expected a script of hicache fuzz, which begins with its engine"
            raise CallerError(f"{path}: {expected}, found another file")
        name = options.target or match[1]
    elif text.startswith(BEGIN):
        name = OURS
    else:
        name = options.target or loads(text, path).target
    if name == OURS:
        core.configured(options.config)  # loads policies of the user
        failure, about = core.replay(path, text)
    else:
        with Session(engine_of(name, options.source)) as session:
            session.start()
            if script:
                return _script(session, text, path)
            failure, about = engines.Process(session, name).replay(path, text)
    code = failure.code if failure and not failure.known else 0
    message = f"{about['entries']} operations, {about['events']} events: no failure"
    document = _head("hicache-fuzz-replay", command, code) | {"failure": None} | about
    if failure:
        keys = ("code", "kind", "at", "text", "known")
        document["failure"] = {key: getattr(failure, key) for key in keys}
        message = f"{failure.text}\nfailed at operation {failure.at} of {about['entries']}: "
        message += f"{failure.code} {failure.kind}"
    print(message, file=sys.stderr if options.json == "-" else sys.stdout)
    if options.json:
        write_json(options.json, document)
    return code


def _script(session: Session, text: str, path: str) -> int:
    script_fails = session.script_fails(text, engines.PLAY_S)
    print(script_fails or f"{session.engine.title}: {path}: no failure")
    return engines.CODE if script_fails else 0
