"""`hicache shrink`: reduces a failing tape, verifies it in new processes, and exports a test.

Contains options, files, processes and output. Does not shrink a tape (see invariants/fuzz/shrink)
or write the test's code (see invariants/fuzz/tapes/export).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hicache.core.errors import CallerError
from invariants.base import NONDETERMINISM
from invariants.fuzz import shrink as shrinker
from invariants.fuzz.ops.base import Operation, check, load
from invariants.fuzz.play import Failure, Outcome, replay
from invariants.fuzz.tapes import tape as tapes
from invariants.fuzz.tapes.export import file_name, pytest_file
from invariants.fuzz.tapes.tape import Tape, spoken

from ..fuzzing import planting
from ..fuzzing.tape_file import open_tape
from ..fuzzing.work import allowed_s, limit
from ..outside import entries
from ..terminal import options as read
from ..terminal.output import (
    as_json,
    check_folder,
    check_outputs,
    temporary_folder,
    write_all,
    write_json,
)
from ..terminal.rows import option
from ..terminal.signals import INTERRUPTED, deferred
from ..terminal.streams import ignore_broken_pipe, print_error
from ..terminal.text import command_line
from ..terminal.text import name as name_of
from ..terminal.workers import run_child

SUMMARY = "make a failing tape smaller with the same failure, and export it as a test"
GROUP = "trust"

_ROOT = Path(__file__).resolve().parents[2]
_HASH_SEEDS = ("0", "1")
_MOST_OUTPUT = 200
_EXPORTED = "traces.fuzzing.exported_child"


class Unsteady(AssertionError):
    """A new process gave another result."""

    exit_code = NONDETERMINISM


@dataclass(frozen=True)
class Options(entries.PolicyOptions):
    tape: str = option("a failing tape of `hicache fuzz`", read.name, "TAPE", positional=True)
    output: str = option(
        "write the small tape to this file; - is stdout", *read.OUTPUT, short="-o", default="-"
    )
    export: str | None = option(
        "also write it as a pytest file to this folder (tests/regress)", read.name, "FOLDER"
    )
    plays: int = option(
        "stop after this many plays, with the smallest tape so far",
        *read.COUNT,
        default=shrinker.MOST_PLAYS,
    )
    as_is: bool = option(
        "only play the tape; print its failure and end with its exit code", default=False
    )
    plant: str | None = planting.bug("the bug in the tape's notes")
    json: str | None = option(
        "also write the result to this file as JSON; - is stdout", *read.OUTPUT
    )


def run(options: Options, command: str) -> int:
    """Runs the command; returns its exit code."""
    _check(options)
    tape = open_tape(options.tape)
    ops = load()
    check(tape, ops, options.tape)
    plant = planting.wanted(options.plant, tape, options.tape)
    with planting.planted(plant):
        failure = _play(tape, ops, options.tape).failure
        if options.as_is:
            return _show(options, failure)
        if failure is None:
            raise CallerError(
                f"{options.tape}: expected a tape that fails, found one that does not"
                f"{f' with {plant} planted' if plant else ''}; give the bug that it needs "
                "(--plant), or play it on the version that it failed on"
            )
        small = options.output if options.output != "-" else ""
        search = shrinker.Search(tape, failure, lambda one: _play(one, ops, small), options.plays)
        begun, complete, text = time.perf_counter(), True, ""
        try:
            search.run()
            text = _verified(options, search.shrunk(), plant)
        except KeyboardInterrupt:
            complete = False
        seconds = time.perf_counter() - begun
    with deferred():  # what was found so far is written whole
        shrunk = _noted(search.shrunk(), plant)
        result = Result(options, shrunk, plant, len(tape.entries), seconds, complete)
        written = _write(result, text)
        _report(result, written)
    return 0 if complete else INTERRUPTED


@dataclass(frozen=True)
class Result:
    """What the search found. before: entries of the tape. complete: whether it was not interrupted,
    so that the small tape is verified.
    """

    options: Options
    shrunk: shrinker.Shrunk
    plant: str
    before: int
    seconds: float
    complete: bool


def _noted(shrunk: shrinker.Shrunk, plant: str) -> shrinker.Shrunk:
    """The result with a note of the planted bug in its tape."""
    notes = shrunk.tape.notes | ({planting.NOTE: plant} if plant else {})
    return replace(shrunk, tape=replace(shrunk.tape, notes=notes))


def _verified(options: Options, shrunk: shrinker.Shrunk, plant: str) -> str:
    """The test of the small tape, after both have failed in new processes."""
    shrunk = _noted(shrunk, plant)
    text = pytest_file(shrunk.tape, shrunk.failure, plant)
    _verify(shrunk, plant, text, f"\nreplay: {_replay(options.tape, plant)}")
    return text


def _write(result: Result, text: str) -> list[str]:
    """Writes the small tape, its test (`text`) if that was verified, and the JSON document; returns
    the paths of the first two.
    """
    options, shrunk = result.options, result.shrunk
    written = [options.output] if options.output != "-" else []
    outputs = [(options.output, [tapes.dumps(shrunk.tape)])]
    if options.export and result.complete:
        test = str(Path(options.export) / file_name(shrunk.tape, shrunk.failure))
        check_outputs({"tape": options.tape}, export=test if Path(test).exists() else None)
        written.append(test)
        outputs.append((test, [text]))
    if options.json:
        outputs.append((options.json, as_json(document(result, written))))
    with ignore_broken_pipe():
        write_all(outputs, (options.export or "") if result.complete else "")
    return written


def _play(tape: Tape, ops: dict[str, Operation], name: str = "") -> Outcome:
    """Plays a tape within a time limit. A tape that does not end fails, too."""
    with limit(allowed_s(len(tape.entries))):
        return replay(tape, ops, name=name)


def _check(options: Options) -> None:
    """Raises CallerError, before long work, if an output cannot be written."""
    if options.output == "-" == options.json and not options.as_is:
        raise CallerError("--json: expected a file, since the tape goes to stdout, found -")
    inputs = {"tape": options.tape, **entries.files()}
    check_outputs(inputs, output=options.output, json=options.json)
    if options.export and entries.given():
        raise CallerError(
            "--export: expected a tape of the project's own policies, since a test has no other, "
            f"found {' '.join(entries.options())}; leave --export out"
        )
    if options.export:
        check_folder(options.export, f"--export {options.export}")


def _show(options: Options, failure: Failure | None) -> int:
    """Prints the failure of the tape as it is; returns its exit code."""
    if options.json:
        write_json(options.json, {"failure": None if failure is None else asdict(failure)})
    text = "it does not fail" if failure is None else failure.text
    with ignore_broken_pipe():
        print(text, file=sys.stderr if options.json == "-" else sys.stdout)
    return 0 if failure is None else failure.code


# -- verification in new processes


def _verify(shrunk: shrinker.Shrunk, plant: str, text: str, hint: str) -> None:
    """Runs the small tape and the test in new processes, each with two hash seeds.

    The tape must fail in the same way. The test must fail, and pass without the planted bug if
    there is one. hint: the command that replays the original tape, for the error message.
    """
    wanted = f"{shrunk.failure.code} {shrunk.failure.kind}"
    with temporary_folder() as folder:
        tape, test = folder / "small.jsonl", folder / "test_small.py"
        tapes.write(tape, shrunk.tape)
        test.write_text(text, encoding="utf-8")
        for seed in _HASH_SEEDS:
            arguments = ["shrink", str(tape), "--as-is", "--json", "-"]
            arguments += [*entries.options(), "--plant", plant]
            seen = _verdict(_run("traces", arguments, seed))
            if seen != wanted:
                raise Unsteady(
                    f"shrink: expected the small tape to fail with {wanted} in a fresh process, "
                    f"found: {seen}; nothing was written{hint}"
                )
            for bug in dict.fromkeys((plant, "")) if not entries.given() else ():
                verdict = "it fails" if bug == plant else "it passes"
                output = _run(_EXPORTED, [str(test), bug], seed).strip()
                if output != verdict:
                    raise Unsteady(
                        f"shrink: expected of the test that {verdict} with "
                        f"{bug or 'nothing'} planted, found: {_verdict(output)}; nothing was "
                        f"written{hint}"
                    )


def _replay(path: str, plant: str) -> str:
    bug = ["--plant", plant] if plant else []
    return command_line(["hicache", "fuzz", "--replay", path, *bug, *entries.options()])


def _verdict(text: str) -> str:
    """Code and kind of the failure that a new process saw; otherwise its last line of output."""
    try:
        failure = json.loads(text)["failure"]
        return f"{failure['code']} {failure['kind']}" if failure else "it does not fail"
    except (ValueError, TypeError, KeyError):
        return (text.strip().splitlines() or ["no message"])[-1][-_MOST_OUTPUT:]


def _run(module: str, arguments: Sequence[str], hash_seed: str) -> str:
    """Runs a module in a new process; returns its output, or its errors if it has none.

    The process keeps its asserts, since an exported test is one.
    """
    paths = [str(_ROOT), os.environ.get("PYTHONPATH", "")]
    settings = {
        "PYTHONHASHSEED": hash_seed,
        "PYTHONOPTIMIZE": "",
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }
    done = run_child(module, arguments, settings)
    return done.stdout or done.stderr


# -- output


def document(result: Result, written: list[str]) -> dict[str, object]:
    """The content of `--json`. Other programs read it: do not rename its keys."""
    options, shrunk = result.options, result.shrunk
    return {
        "complete": result.complete,
        "tape": options.tape,
        "plant": result.plant,
        "failure": asdict(shrunk.failure),
        "entries": {"before": result.before, "after": len(shrunk.tape.entries)},
        "plays": shrunk.plays,
        "rounds": shrunk.rounds,
        "seconds": round(result.seconds, 3),
        "whole": shrunk.whole,
        "others": [[*kind, times] for kind, times in sorted(shrunk.others.items())],
        "verified": len(_HASH_SEEDS) if result.complete else 0,
        "written": written,
    }


def _report(result: Result, written: list[str]) -> None:
    options, shrunk = result.options, result.shrunk
    failure, count = shrunk.failure, len(shrunk.tape.entries)
    stream = sys.stderr if "-" in (options.output, options.json) else sys.stdout
    ranks = f" on {shrunk.tape.ranks} ranks" if shrunk.tape.ranks > 1 else ""
    with_bug = f", with {result.plant} planted" if result.plant else ""
    rest = "" if shrunk.whole else f"; stopped by --plays {options.plays}, it may get smaller"
    checked = f"the same failure {len(_HASH_SEEDS)} times in fresh processes"
    if not result.complete:
        print_error("interrupted; the smallest failing tape so far is kept")
        rest = "; it may get smaller" * (not shrunk.whole)
        checked = "not repeated in fresh processes" + ", so no test" * bool(options.export)
    lines = [
        f"{failure.kind}: exit code {failure.code}{with_bug}",
        f"{result.before} -> {count} operations{ranks}, {shrunk.plays} plays, "
        f"{result.seconds:.1f} s{rest}",
        checked,
        *(f"    {spoken(entry)}" for entry in shrunk.tape.entries),
    ]
    if shrunk.others:
        kinds = ", ".join(f"{kind} ({code})" for code, kind in sorted(shrunk.others))
        lines.append(f"other failures found on the way: {kinds}")
    lines += [f"written: {name_of(path)}" for path in written]
    if options.output != "-":
        small = options.output
        lines.append(f"replay: {_replay(options.output, '')}")
        lines.append(f"explain: hicache explain {command_line([small, *entries.options()])}")
    with ignore_broken_pipe():
        print("\n".join(lines), file=stream)
