"""Files that nobody vouches for, and outputs that would destroy one: one line, and all is kept."""

from __future__ import annotations

import argparse
import bz2
import io
import json
import lzma
import os
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from hicache.files import once, packed_as
from hicache.models import get
from hicache.models._document import as_document
from hicache.version import VERSION
from invariants.fuzz.ops.base import load
from invariants.fuzz.play import replay
from invariants.fuzz.tapes import tape as tapes
from invariants.fuzz.tapes.export import pytest_file
from sim.hardware import measured
from traces.cli import main
from traces.commands import generate, shrink
from traces.formats import mooncake as mooncake_format
from traces.fuzzing.planting import planted
from traces.fuzzing.work import Work
from traces.generators import base
from traces.outside import entries
from traces.terminal import output

from .rig import mooncake, write
from .test_bad_input import fails
from .test_outside import MINE

ROOT = Path(__file__).parents[2]
BUG = "donated-slot-stays-with-its-request"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    entries.forget()


@pytest.fixture
def inputs() -> dict[str, str]:
    """A file of each kind that a command reads, with a hard and a soft link to each."""
    write(Path("trace.jsonl"), mooncake([1, 2], 600))
    tapes.write(Path("tape.jsonl"), Work(5, ("full", "mamba"), plant=BUG).drawn(16))
    Path("model.json").write_text(json.dumps(as_document(get("llama-3.1-8b"))))
    Path("profile.json").write_text("{}")
    names = ("trace.jsonl", "tape.jsonl", "model.json", "profile.json")
    for name in names:
        Path(f"hard-{name}").hardlink_to(name)
        Path(f"soft-{name}").symlink_to(name)
    return {name: Path(name).read_text() for name in names}


# An input, and the command without the file that it writes.
WRITERS = [
    ("trace.jsonl", "inspect trace.jsonl --json"),
    ("trace.jsonl", "replay trace.jsonl --json"),
    ("model.json", "replay trace.jsonl --model model.json --json"),
    ("profile.json", "replay trace.jsonl --hardware ./profile.json --json"),
    ("tape.jsonl", "fuzz --replay tape.jsonl --json"),
    ("tape.jsonl", "explain tape.jsonl --json"),
    ("tape.jsonl", "explain tape.jsonl --trace"),
    ("tape.jsonl", "shrink tape.jsonl --json x --output"),
    ("tape.jsonl", "shrink tape.jsonl -o x --json"),
    ("trace.jsonl", "twin trace.jsonl --profile profile.json --json"),
    ("profile.json", "twin trace.jsonl --profile profile.json --recording"),
]


@pytest.mark.parametrize(("read", "words"), WRITERS, ids=[words for _, words in WRITERS])
def test_no_output_replaces_an_input(
    read: str, words: str, inputs: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(os.listdir())
    for name in (read, f"./{read}", f"hard-{read}", f"soft-{read}", str(Path(read).absolute())):
        assert "which it would replace, found" in fails(capsys, *words.split(), name)
    assert {name: Path(name).read_text() for name in inputs} == inputs
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize("words", [*(words for _, words in WRITERS), "generate multiturn -o"])
def test_an_output_that_cannot_be_written_is_found_before_the_work(
    words: str, inputs: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("loop").symlink_to("loop")
    Path("kept").write_text("")
    Path("kept").chmod(0o444)
    Path("folder").mkdir()
    before = sorted(os.listdir())
    for name, said in (
        ("trace.jsonl/out", "found: no directory there"),
        ("missing/out", "found: no directory there"),
        ("folder", "found: a directory"),
        ("loop", "found: a link to itself"),
        ("kept", "found: a read-only file"),
        ("x" * 256, "found: File name too long"),
        ("", "expected a name, found none"),
        ("a\0b", "expected a name, found 'a\\x00b'"),
        ("/dev/fd/99", "found: no"),
    ):
        assert said in fails(capsys, *words.split(), name)
    assert sorted(os.listdir()) == before


def test_a_policy_of_the_user_is_an_input(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(MINE)
    words = ("replay", "--eviction", "mine.py:Mine", "--json", "./mine.py")
    assert "than the file of mine.py:Mine, which it would replace" in fails(capsys, *words)
    assert Path("mine.py").read_text() == MINE


def test_standard_output_has_several_names(
    inputs: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        assert main(["inspect", "trace.jsonl", "--json", name]) == 0
        said = capsys.readouterr()
        assert json.loads(said.out)["requests"] == 1
        assert "LRU hit rate" in said.err


def test_the_name_of_an_open_stream_is_added_to() -> None:
    with open("log", "w+") as log:
        log.write("before\n")
        log.flush()
        output.write_whole(f"/dev/fd/{log.fileno()}", ["new\n"])
        assert Path("log").read_text() == "before\nnew\n"
    assert os.listdir() == ["log"]


def test_a_pipe_is_written_to(inputs: dict[str, str]) -> None:
    os.mkfifo("pipe")
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(Path("pipe").read_text()))
    reader.start()
    assert main(["inspect", "trace.jsonl", "--json", "pipe"]) == 0
    reader.join()
    assert json.loads(got[0])["requests"] == 1
    assert Path("pipe").is_fifo()


def test_all_files_are_written_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(name: str, path: Path, mode: str, pieces: Any) -> None:
        if name.startswith("folder"):
            raise output.unwritable(name, "No space left on device")
        path.write_text("".join(pieces))

    tapes.write(Path("tape.jsonl"), Work(5, ("full", "mamba"), plant=BUG).drawn(16))
    monkeypatch.setattr(output, "_fill", fill)
    monkeypatch.setattr(shrink, "_verify", lambda *_: None)  # takes new processes
    words = ("shrink", "tape.jsonl", "-o", "small.jsonl", "--export", "folder/below")
    assert main([*words, "--json", "out.json"]) == 2
    assert os.listdir() == ["tape.jsonl"]


# -- what is read


def _zip() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("trace.jsonl", "{}")
    return packed.getvalue()


PACKED = {
    "zip": _zip(),
    "bzip2": bz2.compress(b"{}"),
    "xz": lzma.compress(b"{}"),
    "zstd": b"\x28\xb5\x2f\xfd\x00\x00",
}
READERS = (
    ("models", "x.json"),
    ("replay", "--model", "x.json"),
    ("replay", "--hardware", "x.json"),
    ("fuzz", "--replay", "x.json"),
    ("explain", "x.json"),
    ("shrink", "x.json"),
)


def one_line(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The error of a command that may print a part of its report before."""
    assert main(list(words)) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


@pytest.mark.parametrize("kind", PACKED)
def test_packed_files_are_named(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.json").write_bytes(PACKED[kind])
    assert packed_as(PACKED[kind]) == kind
    for words in (*READERS, ("inspect", "x.json"), ("replay", "x.json")):
        said = one_line(capsys, *words)
        assert f"a file packed with {kind}; unpack it first" in said


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_pipes_and_endless_files_are_refused(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo("x.json")
    assert "found: a pipe or a device; write it to a file first" in one_line(capsys, *words)
    Path("x.json").unlink()
    Path("x.json").symlink_to("/dev/zero")
    assert "found: a pipe or a device" in one_line(capsys, *words)
    Path("x.json").unlink()
    with open("x.json", "wb") as sparse:
        sparse.truncate(1 << 40)
    assert "expected at most" in one_line(capsys, *words)


MODEL = as_document(get("llama-3.1-8b"))
[POOL] = MODEL["pools"]  # type: ignore[misc]
NUMBERS = [name for name, value in MODEL.items() if type(value) is int]
NUMBERS_OF_POOL = [name for name, value in POOL.items() if type(value) is int]  # type: ignore[has-type]


@pytest.mark.parametrize(
    "value",
    [str(1 << 62), "9" * 4000, "9" * 5000, "-1", "1e300", "1e999", "NaN", '"1"', "null", "true"],
    ids=lambda text: text[:20],
)
def test_numbers_of_models_are_bounded(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    cases = [{**MODEL, name: "VALUE"} for name in NUMBERS]
    cases += [{**MODEL, "pools": [{**POOL, name: "VALUE"}]} for name in NUMBERS_OF_POOL]  # type: ignore[has-type]
    texts = [json.dumps(case).replace('"VALUE"', value) for case in cases]
    for text in texts:
        Path("model.json").write_text(text)
        said = fails(capsys, "models", "model.json")
        assert said.startswith("hicache: model.json: ")
        assert "expected" in said
        assert len(said) < 300


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 90_000, '{"a": 1, "a": 2}', "", "null", "\ufeff{}", '"\\ud800"'],
)
def test_strange_json_is_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.json").write_text(text)
    for words in READERS:
        one_line(capsys, *words)


@pytest.mark.parametrize("value", [1 << 62, 1 << 61, -1, 1e300, "1", None])
def test_numbers_of_profiles_are_bounded(value: object, capsys: pytest.CaptureFixture[str]) -> None:
    fields = measured._GEOMETRY
    curve = [[1, 1], [2, 2]]
    for name in ("flops_per_s", "hbm_bytes", "link_permille", "copy_latency_ns"):
        document = {
            **{section: {} for section in measured._SECTIONS if section != "hash"},
            "name": "x",
            "hardware": {name: value},
            "curves": {"h2d": curve, "d2h": curve},
            "geometry": {field: kind() for field, kind in fields.items()},
        }
        Path("profile.json").write_text(json.dumps(measured.seal(document)))
        with pytest.raises(measured.CallerError, match=f"{name} is ") as error:
            measured.read("profile.json", [name])
        assert "\n" not in str(error.value)


class _Counted:
    """Counts how often its values are compared."""

    times = 0


class _Name(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        _Counted.times += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


class _Id(int):
    def __eq__(self, other: object) -> bool:
        _Counted.times += 1
        return int.__eq__(self, other)

    __hash__ = int.__hash__


def compared(work: Callable[[], object]) -> int:
    _Counted.times = 0
    work()
    return _Counted.times


def test_a_repetition_is_found_in_linear_time() -> None:
    many = 2000
    pairs = [(_Name(f"name {place}"), 0) for place in range(many)]
    with pytest.raises(ValueError, match="twice"):
        once([*pairs, (_Name(pairs[-1][0]), 0)])
    assert compared(lambda: once(pairs)) < many
    ids = [_Id(place) for place in range(many)]
    repeated = mooncake_format._first_repeated
    assert compared(lambda: repeated([*ids, _Id(many - 1)])) < many
    assert repeated([3, 4, 5, 4, 3]) == 4


# -- what is generated


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("multiturn --clients 256T", "expected at most 2147483648 requests"),
        ("multiturn --clients 100G", "expected at most 2147483648 requests"),
        ("random-tree --requests 100G", "expected at most 2147483648 requests"),
        ("multiturn --rounds 100K", "expected at most 16777216 tokens in a request"),
        ("shared-prefix --system-tokens 1G", "expected at most 16777216 tokens in a request"),
        ("multiturn --clients 1M --rounds 1K -o out", "of free space for 1,000,000,000 requests"),
    ],
)
def test_a_trace_that_nothing_can_hold_is_refused(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in fails(capsys, "generate", *words.split())
    assert not os.listdir()


def test_a_large_trace_is_announced_and_an_interrupt_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(lines: Iterator[str], report: object) -> Iterator[str]:
        yield next(lines)
        assert len(os.listdir()) == 1
        raise KeyboardInterrupt

    monkeypatch.setattr(generate, "_LARGE_BYTES", 1000)
    monkeypatch.setattr(generate, "_counted", interrupted)
    assert main(["generate", "multiturn", "--clients", "40", "-o", "out"]) == 130
    said = capsys.readouterr().err
    assert said.startswith("hicache generate: 480 requests, about 0.0 GB; Ctrl-C stops it\n")
    assert said.endswith("hicache: interrupted\n")
    assert not os.listdir()


def test_running_out_of_memory_names_what_the_command_can_change(
    monkeypatch: pytest.MonkeyPatch, inputs: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    def no_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("traces.commands.inspect.open_trace", no_memory)
    monkeypatch.setattr("traces.replaying.builtin.open_trace", no_memory)
    monkeypatch.setattr("traces.commands.explain.open_tape", no_memory)
    said = fails(capsys, "inspect", "trace.jsonl")
    assert "read fewer requests (--limit)" in said
    assert "pools" not in said
    assert "smaller pools, or read fewer requests" in fails(capsys, "replay", "trace.jsonl")
    assert "give a smaller input" in fails(capsys, "explain", "tape.jsonl")


# -- the first code of the command


@pytest.mark.parametrize("module", ["traces.cli", "argparse", "numpy", "rich"])
@pytest.mark.parametrize("package", ["hicache", "traces"])
def test_an_interrupt_while_modules_load_is_quiet(module: str, package: str) -> None:
    code = f"""
import os, runpy, signal, sys

class Interrupts:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
for name in ("argparse", "traces.cli"):
    sys.modules.pop(name, None)
sys.argv = ["hicache", "inspect", "trace.jsonl"]
runpy.run_module({package!r}, run_name="__main__", alter_sys=False)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "hicache: interrupted\n")


def test_an_ignored_interrupt_stays_ignored() -> None:
    code = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
import traces.start
print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout == b"True\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# -- names of commands, options and values


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("repaly", "did you mean replay?"),
        ("--versoin", "did you mean --version?"),
        ("replay --jsn x", "did you mean --json? (see hicache replay --help)"),
        ("replay --host-pags=4", "did you mean --host-pages?"),
        ("replay --mode hist", "did you mean hits?"),
        ("replay --check evry", "did you mean every?"),
        ("replay --write-policy write_thru", "did you mean write_through?"),
        ("generate multitrun", "did you mean multiturn?"),
        ("generate multiturn --client 3 --round 4 --sed 1", "did you mean --clients?"),
        ("replay --modle tiny", "did you mean --model?"),
        ("fuzz --second 5", "did you mean --seconds?"),
        ("replay --host-byte 5GB", "did you mean --host-bytes?"),
        ("inspect --model tiny", "unrecognized arguments: --model (see hicache inspect"),
        ("replay --scheduler lpm", "found 'lpm'; did you mean longest-prefix?"),
        ("replay --kv-dtype fp8_e4m3", "did you mean fp8?"),
        ("replay --model meta-llama/Llama-3.1-8B-Instruct", "did you mean llama-3.1-8b?"),
        ("replay --model Llama-3.1-8B-Instruct", "did you mean llama-3.1-8b?"),
        ("models meta-llama/Llama-3.1-8B-Instruct", "did you mean llama-3.1-8b?"),
        ("models deepseek-ai/DeepSeek-V3.2-Exp", "did you mean deepseek-v3.2?"),
        ("host --host-bytes 0 512GB 1TB", "without spaces (1TB), several with commas (0,512GB,1"),
        ("host --host-bytes 1 TB", "without spaces (1TB), several with commas (0,512GB,1"),
        ("replay --host-bytes 512", "(8,388,608 bytes), found 512 bytes; give more, or no host "),
        ("replay --host-bytes 512", "did you mean 512GB?"),
        ("replay --why r4711", "the number of a request, such as 4711, found 'r4711'"),
        ("replay --tp 3", "use 1, 2, 4, 8 or 16\n"),
        ("replay --eviction nothing", "hicache: --eviction: expected one of fifo"),
        ("fuzz --plant donated-slot-stays-with-its-requests", f"did you mean {BUG}?"),
    ],
)
def test_a_misspelt_word_gets_a_suggestion(
    words: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hint in fails(capsys, *words.split())


# -- the exported test


def test_an_exported_test_fails_without_asserts_and_is_printable() -> None:
    tape = Work(5, ("full", "mamba"), plant=BUG).drawn(16)
    with planted(BUG):
        failure = replay(tape, load()).failure
    assert failure is not None
    hostile = replace(failure, kind='"""\x1b[2J', text='"""\n\x1b[2J\u202e\x9b1m\\')
    text = pytest_file(replace(tape, notes={"commit": "\x1b[2J\n\x00"}), hostile, BUG)
    assert text.isascii()
    assert text.replace("\n", "").isprintable()
    exported: dict[str, Any] = {"__name__": "exported", "__file__": "test_exported.py"}
    exec(compile(text, "exported", "exec", optimize=2), exported)
    with planted(BUG), pytest.raises(AssertionError):
        exported["test_the_core_plays_it_clean"]()
    exported["test_the_core_plays_it_clean"]()


def test_the_version_and_both_modules(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"hicache {VERSION}\n"
    assert version("hicache") == VERSION
    for module in ("hicache", "traces"):
        words = [sys.executable, "-m", module, "--version"]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stdout == f"hicache {VERSION}\n"


def test_an_exported_test_does_not_replace_the_tape_that_it_comes_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shrink, "_verify", lambda *_: None)  # takes new processes
    tapes.write(Path("tape.jsonl"), Work(5, ("full", "mamba"), plant=BUG).drawn(16))
    assert main(["shrink", "tape.jsonl", "-o", "small", "--export", "."]) == 0
    [exported] = Path().glob("test_*.py")
    text = exported.read_text()
    capsys.readouterr()
    words = ("shrink", exported.name, "--plant", BUG, "-o", "smaller", "--export", ".")
    assert "--export: expected another file than the tape" in fails(capsys, *words)
    assert exported.read_text() == text
    assert not Path("smaller").exists()


@pytest.mark.parametrize(
    "words",
    [
        *("multiturn", "multiturn --clients 90 --rounds 3", "multiturn --rounds 70 --clients 3"),
        *("multiturn --clients 900 --rounds 1 --system-tokens 5", "shared-prefix --rounds 1"),
        *("shared-prefix --groups 2 --prompts 1", "random-tree", "random-tree --depth 15"),
        *("random-tree --depth 1 --requests 9", "random-tree --fanout 40 --segment-tokens 9"),
    ],
)
def test_the_announced_size_is_about_the_size(words: str) -> None:
    name, *rest = words.split()
    generator, parser = base.load(name), argparse.ArgumentParser()
    generator.add_options(parser)
    options = generator.Options.read(parser.parse_args(rest))
    extent = generator.extent(options)
    _, *lines = base.text(name, generator, options)
    assert extent.requests == len(lines)
    assert 0.7 < extent.bytes / sum(map(len, lines)) < 1.5
    tokens = [
        sum(length for _, length in (*record["input"], record["output"]))
        for record in map(json.loads, lines)
    ]
    assert max(tokens) <= extent.largest_tokens
