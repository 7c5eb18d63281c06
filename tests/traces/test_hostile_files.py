"""Files that nobody vouches for, and requests that no machine can serve: one line each."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hicache.core.errors import CallerError
from hicache.files import once, packed_as, text_of
from hicache.models import get
from hicache.models._document import as_document
from sim.hardware import measured
from traces.cli import main
from traces.formats._pages import first_repeated
from traces.generators import GENERATORS
from traces.generators import text as generated

from .rig import Capsys, Patch, fails, input_files

pytestmark = pytest.mark.usefixtures("here")


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
    "7z": b"7z\xbc\xaf\x27\x1c\x00\x00",
}
READERS = (
    ("models", "x.json"),
    ("replay", "--model", "x.json"),
    ("replay", "--hardware", "x.json"),
    ("fuzz", "--replay", "x.json"),
)


def one_line(capsys: Capsys, *words: str) -> str:
    """The error of a command that may print a part of its report before."""
    assert main(list(words)) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


@pytest.mark.parametrize("kind", PACKED)
def test_packed_files_are_named(kind: str, capsys: Capsys) -> None:
    Path("x.json").write_bytes(PACKED[kind])
    assert packed_as(PACKED[kind]) == kind
    for words in (*READERS, ("inspect", "x.json"), ("replay", "x.json")):
        said = one_line(capsys, *words)
        assert f"a file packed with {kind}; unpack it first" in said


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_pipes_and_endless_files_are_refused(words: tuple[str, ...], capsys: Capsys) -> None:
    os.mkfifo("x.json")
    assert "found: a pipe or a device; write it to a file first" in one_line(capsys, *words)
    Path("x.json").unlink()
    Path("x.json").symlink_to("/dev/zero")
    assert "found: a pipe or a device" in one_line(capsys, *words)
    Path("x.json").unlink()
    with open("x.json", "wb") as sparse:
        sparse.truncate(1 << 40)
    assert "expected at most" in one_line(capsys, *words)


def test_a_file_may_have_as_many_bytes_as_its_reader_takes() -> None:
    Path("x.json").write_text("12345")
    assert text_of("x.json", "tape", 5) == "12345"
    with pytest.raises(CallerError, match="expected at most 4 bytes, found 5; name another tape"):
        text_of("x.json", "tape", 4)


MODEL = as_document(get("llama-3.1-8b"))
[POOL] = MODEL["pools"]  # type: ignore[misc]
NUMBERS = [name for name, value in MODEL.items() if type(value) is int]
NUMBERS_OF_POOL = [name for name, value in POOL.items() if type(value) is int]  # type: ignore[has-type]


@pytest.mark.parametrize(
    "value",
    [str(1 << 62), "9" * 4000, "9" * 5000, "-1", "1e300", "1e999", "NaN", '"1"', "null", "true"],
    ids=lambda text: text[:20],
)
def test_numbers_of_models_are_bounded(value: str, capsys: Capsys) -> None:
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
def test_strange_json_is_one_line(text: str, capsys: Capsys) -> None:
    Path("x.json").write_text(text)
    for words in READERS:
        one_line(capsys, *words)


@pytest.mark.parametrize("value", [1 << 62, 1 << 61, -1, 1e300, "1", None])
def test_numbers_of_profiles_are_bounded(value: object, capsys: Capsys) -> None:
    geometry = {"page_size": 1, "model": "m", "component": "c", "layout": "page_first"}
    curve = [[1, 1], [2, 2]]
    for name in ("flops_per_s", "hbm_bytes", "link_permille", "copy_latency_ns"):
        document = {
            "name": "x",
            "hardware": {name: value},
            "machine": {},
            "made": {},
            "measured": {},
            "curves": {"h2d": curve, "d2h": curve},
            "geometry": {**geometry, "io_backend": "kernel", "shapes": []},
        }
        Path("profile.json").write_text(json.dumps(measured.seal(document)))
        with pytest.raises(
            measured.CallerError, match=f"hardware.{name}: expected an int"
        ) as error:
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
    repeated = first_repeated
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
    ],
)
def test_a_trace_that_nothing_can_hold_is_refused(words: str, said: str, capsys: Capsys) -> None:
    assert said in fails(capsys, "generate", *words.split())
    assert not os.listdir()


def test_running_out_of_memory_is_one_line(monkeypatch: Patch, capsys: Capsys) -> None:
    input_files()

    def no_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("traces.replaying.options.open_trace", no_memory)
    monkeypatch.setattr("invariants.fuzz.tapes.tape.read", no_memory)
    words = (
        ["inspect", "trace.jsonl"],
        ["replay", "trace.jsonl"],
        ["fuzz", "--replay", "tape.jsonl"],
    )
    for each in words:
        assert "to fit in RAM, found that no more is free; give" in fails(capsys, *each)


@pytest.mark.parametrize(
    "words",
    [
        *("multiturn --clients 3 --system-tokens 5", "shared-prefix --rounds 1 --groups 3"),
        *("random-tree --depth 2", "bench-multiturn --num-clients 3"),
        *("serving-shared-prefix --runs 2", "serving-random --num-prompts 9"),
    ],
)
def test_the_size_that_is_refused_is_the_size(words: str) -> None:
    name, *rest = words.split()
    options = GENERATORS[name].read(rest)
    _, *lines = map(json.loads, generated(name, options))
    requests, longest = options.extent
    assert requests == len(lines)
    tokens = [sum(one for _, one in (*line["input"], line["output"])) for line in lines]
    assert max(tokens) <= longest
