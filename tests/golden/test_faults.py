"""What may go wrong at the command line: hostile input, full disks, dead and hung stores, Ctrl-C,
pipes that close. One line on standard error, an exit code, and no file that is half written."""

import bz2
import json
import lzma
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.needs import PATIENCE_S
from traces.cli import main

from .playing import ROOT, conversations

pytestmark = pytest.mark.usefixtures("signals")
Capsys = pytest.CaptureFixture[str]
COMMAND = [sys.executable, "-m", "hicache"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(capsys: Capsys, *words: str) -> str:
    """The line of a command that must end with code 2, and leave no file."""
    before = sorted(os.listdir())
    assert main(list(words)) == 2, words
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("hicache: "), words
    assert output.err.count("\n") == 1, words
    assert len(output.err) < 1000, words
    assert sorted(os.listdir()) == before
    return output.err


def ran(*words: str, **how: Any) -> subprocess.CompletedProcess[str]:
    usual = {"env": ENVIRONMENT, "capture_output": True, "text": True, "timeout": PATIENCE_S}
    return subprocess.run([*COMMAND, *words], check=False, **{**usual, **how})


# -- hostile input


HOSTILE = {
    "empty": b"",
    "binary": bytes(range(256)) * 40,
    "zip": b"PK\x03\x04" + bytes(26),
    "7z": b"7z\xbc\xaf\x27\x1c\x00\x00",
    "bzip2": bz2.compress(b"{}"),
    "xz": lzma.compress(b"{}"),
    "cut gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xab\x56",
    "cut": b'{"timestamp": 0, "input_length": 51',
    "nested": b"[" * 100_000,
    "objects": b'{"a":' * 90_000,
    "huge number": b'{"timestamp": ' + b"9" * 5000 + b"}\n",
    "infinite": b'{"timestamp": 1e999, "hash_ids": [1]}\n',
    "twice": b'{"a": 1, "a": 2}\n',
    "surrogate": b'"\\ud800"\n',
    "null": b"null\n",
    "escapes": b'{"\\u001b[2J\\u202e\\r\\nhicache: forged": 1}\n',
}
FORMATS = (
    *("auto", "native", "mooncake", "bailian", "weka", "dynamo", "vllm", "sglang", "chat"),
    *("azure", "burstgpt", "splitwise", "openai", "serving-benchmark"),
)
READERS = (
    *("models x", "replay --limit 1 --model x", "replay --limit 1 --hardware x", "fuzz --replay x"),
    *("compare x x", "report x -o out.html", "twin x --profile x", "convert x -o out.jsonl"),
    *("inspect x", "curve x", "size x --slo ttft=1s", "sweep x --host-ratio 0,1"),
)


@pytest.mark.parametrize("name", FORMATS)
def test_a_hostile_trace(name: str, capsys: Capsys) -> None:
    for content in HOSTILE.values():
        Path("x").write_bytes(content)
        message = refused(capsys, "inspect", "x", "--format", name)
        assert message[:-1].isprintable()
    assert main(["inspect", "/dev/zero", "--format", name]) == 2


@pytest.mark.parametrize("words", READERS)
def test_a_hostile_file(words: str, capsys: Capsys) -> None:
    value = [{"x": "x.json"}.get(word, word) for word in words.split()]
    for content in HOSTILE.values():
        Path("x.json").write_bytes(content)
        refused(capsys, *value)
    Path("x.json").unlink()
    refused(capsys, *value)
    Path("x.json").mkdir()
    refused(capsys, *value)
    Path("x.json").rmdir()
    if value[0] in ("models", "replay", "fuzz", "compare", "report"):
        os.mkfifo("x.json")
        assert "a pipe or a device" in refused(capsys, *value)
        Path("x.json").unlink()
        with open("x.json", "wb") as sparse:
            sparse.truncate(1 << 40)
        assert "expected at most" in refused(capsys, *value)


GOOD = {"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}


@pytest.mark.parametrize(
    "changed",
    [
        *({"timestamp": item} for item in ("0", -1, None, True)),
        *({"input_length": item} for item in (0, -600, 600.0, 10**12, True)),
        *({"output_length": item} for item in (-1, 0)),
        *({"hash_ids": item} for item in ([1], [1, 2, 3], [1, True], [1, 1 << 64], [1, 1], None)),
    ],
    ids=str,
)
def test_a_field_of_a_trace_out_of_range_is_named_with_its_line(
    changed: dict[str, Any], capsys: Capsys
) -> None:
    lines = [GOOD, GOOD | changed]
    Path("trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "trace.jsonl:2: expected" in refused(capsys, "replay", "trace.jsonl")


# -- files that are written


def test_a_disk_that_fills_leaves_no_half_of_a_file() -> None:
    """Files of 4 KiB at most; then a device that is full. What was there stays."""
    Path("out").write_text("before")

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    for output, how in (("out", {"preexec_fn": small}), ("/dev/full", {})):
        result = ran("generate", "multiturn", "-o", output, **how)
        assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stderr
        assert output in result.stderr
        assert (os.listdir(), Path("out").read_text()) == (["out"], "before")


def test_a_pipe_that_closes_is_no_error() -> None:
    with subprocess.Popen(
        [*COMMAND, "generate", "multiturn", "--clients", "5000", "-o", "-"],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"format": "hicache-trace"')
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE_S) == 0


# -- stores


def test_a_store_without_room_is_one_line_and_the_replay_goes_on() -> None:
    trace = conversations(Path("trace.jsonl"), 20)

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))

    words = ["replay", trace, "--mode", "hits", "--device-tokens", "16K", "--check", "every"]
    result = ran(*words, "--storage", "file:store", "--json", "out.json", preexec_fn=small)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("\n") == 1
    assert "takes no writes" in result.stderr
    document = json.loads(Path("out.json").read_text())
    assert (document["complete"], document["total"]["requests"]) == (True, 20)
    assert document["checks"]["violations"] == 0


@pytest.mark.parametrize("listens", [False, True])
def test_a_store_that_is_dead_or_hangs(listens: bool, capsys: Capsys) -> None:
    pytest.importorskip("redis", exc_type=ImportError)
    trace = conversations(Path("trace.jsonl"), 6)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not listens:
            server.close()
        words = ["replay", trace, "--mode", "hits", "--storage", f"redis://127.0.0.1:{port}"]
        message = refused(capsys, *words, "--json", "out.json")
    assert ("gives no answer" if listens else "Connection refused") in message


# -- Ctrl-C


def interrupted(process: subprocess.Popen[str], ready: Callable[[], bool]) -> str:
    """Sends SIGINT once it is ready. Returns what it said to standard error."""
    end = time.monotonic() + PATIENCE_S
    while not ready() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, message
    assert "Traceback" not in message
    return message


def started(*words: str, **how: Any) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*COMMAND, *words], env=ENVIRONMENT, **{**pipes, **how})


@pytest.mark.parametrize("words", ["replay - --json out.json", "convert - -o out.jsonl"])
def test_ctrl_c_while_a_trace_is_read_leaves_nothing(words: str) -> None:
    with started(*words.split(), stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        lines = Path(conversations(Path("trace.jsonl"), 400, 20, blocks=8)).read_text()
        assert len(lines) > 1 << 17  # more than a pipe holds, so some of it was read
        process.stdin.write(lines)
        assert interrupted(process, lambda: True) == "hicache: interrupted\n"
    assert os.listdir() == ["trace.jsonl"]
