"""Every command that the README, the docs and `--help` show is understood, runs and ends well.

Commands of a page that share a file run one after the other, the others in tests of their own.
Their trace is a small one; that of `replay --why` in the README is the public one where there is a
copy (see conversation), and its answer is what the page shows. What would take minutes is cut short
(`SHORTER`), so these runs say nothing of the figures that a page gives for them.
"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from hicache.core.errors import CallerError
from tests.conversation import conversation
from tests.mine import files
from tests.needs import PATIENCE_S
from tests.planted import planted
from tests.shown import Shown, commands, pages, spans
from tests.traces.rig import mooncake
from traces import plugins
from traces.cli import main, parse

PAGES = pages()
FAILING = ("fuzz", "--seed", "1", "--sequences", "4", "--jobs", "1")
# Words that a page leaves for the reader to fill in.
STANDS_FOR = {
    "SEQUENCE": "SEQUENCE.jsonl",
    "TRACE": "TRACE.jsonl",
    "COMMAND": "replay",
    "LIST": "full,swa",
}
LETTERS = {"--page-size": "512"}
# Options that bound what would take minutes: the first row whose words are all in the command.
SHORTER: tuple[tuple[set[str], tuple[str, ...]], ...] = (
    ({"sweep"}, ("--limit", "3", "--jobs", "1")),
    ({"replay", "--why"}, ("--limit", "300")),
    ({"size"}, ("--limit", "6", "--jobs", "1")),
    ({"shared-prefix", "128"}, ("--groups", "8")),
    ({"curve", "all"}, ("--limit", "500")),
    ({"replay", "gpt-oss-120b", "2000"}, ("--limit", "40")),
    ({"replay", "file:DIR?size=20GB"}, ("--limit", "40")),
    ({"fuzz", "--replay"}, ()),
    ({"fuzz", "adapter.py:Radix"}, ("--sequences", "2")),
    ({"fuzz"}, ("--sequences", "2", "--jobs", "1")),
    ({"calibrate"}, ("--pages", "16")),
    ({"replay"}, ("--limit", "20")),
)
TRACES = {"TRACE.jsonl", "trace.jsonl"}


def small_trace(path: Path) -> None:
    """A trace in the Mooncake format: 40 requests that share blocks."""
    rows = [mooncake([0, 1 + n % 3, 10 + n], 1436, n * 50, output_length=20) for n in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sequence that fails."""
    folder = tmp_path_factory.mktemp("failing")
    with planted("donated-slot-stays-with-its-request"):
        assert main([*FAILING, "-o", str(folder)]) == 11
    return next(folder.glob("11-*.jsonl"))


def furnish(folder: Path, sequence: Path, page: str, real: Path | None = None) -> None:
    """What the commands of a page read: a trace, a sequence that fails, the classes that it
    shows."""
    text = PAGES[page]
    for name in TRACES:
        if real is not None:
            shutil.copyfile(real, folder / name)  # a page may write a trace of this name
        else:
            small_trace(folder / name)
    (folder / "mine.json").write_text('{"name": "mine", "batching": "separate"}')
    (folder / "fuzz-failures").mkdir()
    for place in ("SEQUENCE.jsonl", "small.jsonl", "fuzz-failures/SEQUENCE.jsonl"):
        shutil.copy(sequence, folder / place)
    for log in re.findall(r"```csv\n(.*?)```", text, re.DOTALL):
        (folder / "log.csv").write_text(log)
    for classes in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        (folder / "mine.py").write_text(classes)
    for name, code in files(text).items():
        (folder / name).write_text(code)


def chains(shown: Sequence[Shown]) -> list[list[Shown]]:
    """The commands in order, those that share a file together. A pattern is of what the command
    before it wrote."""
    texts: list[tuple[set[str], list[int]]] = []
    for place, item in enumerate(shown):
        words = {word.partition("?")[0] for word in item.words}
        files = {word for word in words if re.search(r"^file:|\w\.[a-z]+$", word)} - TRACES
        before = {place - 1} if any("*" in word for word in item.words) else set()
        joined = [chain for chain in texts if chain[0] & files or before & {*chain[1]}]
        texts = [chain for chain in texts if chain not in joined]
        numbers = [number for chain in joined for number in chain[1]]
        texts.append((files.union(*(chain[0] for chain in joined)), [*sorted(numbers), place]))
    return [[shown[number] for number in numbers] for _, numbers in texts]


# What several pages show runs once.
CHAINS = {
    " ".join(map(str, chain)).lower(): pytest.param(page, chain, id=f"{page}: {chain[0]}")
    for page, text in PAGES.items()
    for chain in chains(commands(text))
}


def runnable(words: tuple[str, ...], small: bool = True) -> list[str]:
    """The arguments of a command, with something for every placeholder, within bounds."""
    filled = [
        LETTERS.get(option, "8") if len(word) == 1 else STANDS_FOR.get(word, word)
        for option, word in pairwise(words)
    ]
    named = [_newest(word) if "*" in word else word for word in filled]
    for option, value in (("--why", "17"), ("--context", "79bb0a")) if small else ():
        if option in named[:-1]:
            named[named.index(option) + 1] = value
    bound = next((extra for requested, extra in SHORTER if requested <= {*named}), ())
    for option in bound[::2]:
        if option in named:  # an option is given once
            place = named.index(option)
            del named[place : place + 2]
    return [*named, *bound]


def _newest(pattern: str) -> str:
    return max(glob.glob(pattern), key=os.path.getmtime)


@pytest.mark.parametrize(("page", "chain"), [*CHAINS.values()])
def test_every_command_in_a_block_runs(
    page: str,
    chain: list[Shown],
    failing: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    shows = page == "readme" and "--why" in chain[0].words
    real = None
    with suppress(pytest.skip.Exception):
        real = conversation() if shows else None
    furnish(tmp_path, failing, page, real)
    printed, engine = "", False
    try:
        for shown in chain:
            arguments = runnable(shown.words, real is None)
            engine = engine or needs_engine(arguments)
            if engine:
                parse(arguments)  # it needs an engine that is not here, or what that would write
                continue
            code = piped(shown) if shown.pipe else main(arguments)
            text = capsys.readouterr()
            printed += text.out
            # a sequence that fails may be what a command reads, or what it looks for
            wanted = {shown.code, *((0, 11) if shown.words[1] == "fuzz" else ())}
            assert code in wanted, f"{shown}\n{text.out[-2000:]}\n{text.err[-2000:]}"
    finally:
        plugins.forget()
    if real is not None:
        [_, answer] = re.findall(r"```text\n(.*?)```", PAGES[page], re.DOTALL)  # see test_docs
        assert {line.rstrip() for line in answer.splitlines()} <= {
            line.rstrip() for line in printed.splitlines()
        }


def needs_engine(arguments: list[str]) -> bool:
    """Whether a command runs an engine that is installed for it."""
    return arguments[0] == "fuzz" and "--source" in arguments


def piped(shown: Shown) -> int:
    """The exit code of a command whose output another command reads."""
    hicache = (sys.executable, "-m", "traces")
    first = subprocess.Popen([*hicache, *shown.words[1:]], stdout=subprocess.PIPE)
    second = subprocess.run(
        [*hicache, *shown.pipe[1:]], stdin=first.stdout, check=False, timeout=PATIENCE_S
    )
    assert first.stdout is not None
    first.stdout.close()
    return first.wait(PATIENCE_S) or second.returncode


@pytest.mark.parametrize("page", [name for name, text in PAGES.items() if spans(text)])
def test_every_command_in_the_text_has_options_that_exist(
    page: str, tmp_path: Path, failing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    furnish(tmp_path, failing, page)
    for shown in spans(PAGES[page]):
        try:
            parse(runnable(shown.words))
        except SystemExit:
            assert {"--help", "--formats"} & {*shown.words}
        except CallerError as error:  # the text may name an option without its value
            if "requires an argument" not in str(error):
                raise
