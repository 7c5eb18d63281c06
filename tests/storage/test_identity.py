"""The digests of weights and adapters follow what is in the files, and not how they are listed."""

import io
import json
import math
import multiprocessing
import os
import random
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from hicache import clock
from hicache.core.errors import CallerError
from hicache.storage import identity
from hicache.storage.identity import _parts, digest_of_adapter, digest_of_files, digest_of_weights

MEGABYTE = 1 << 20


def folder(place: Path, **files: bytes) -> str:
    place.mkdir()
    for name, content in files.items():
        (place / f"{name}.safetensors").write_bytes(content)
    return str(place)


def test_the_order_of_a_folder_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder(tmp_path / "a", one=b"1", two=b"2", three=b"3")
    digest = digest_of_files(place, "weights")
    listed = Path.iterdir

    def backwards(self: Path) -> Iterator[Path]:
        return iter(sorted(listed(self), reverse=True))

    monkeypatch.setattr(Path, "iterdir", backwards)
    assert digest_of_files(place, "weights") == digest
    monkeypatch.setattr(Path, "iterdir", lambda self: iter(sorted(listed(self))))
    assert digest_of_files(place, "weights") == digest


@pytest.mark.parametrize("at", [0, MEGABYTE - 1, 3 * MEGABYTE, 5 * MEGABYTE + 7])
def test_a_change_in_what_is_read_gives_another(tmp_path: Path, at: int) -> None:
    content = bytearray(5 * MEGABYTE + 8)
    before = digest_of_files(folder(tmp_path / "a", one=bytes(content)), "weights")
    content[at] = 1
    assert digest_of_files(folder(tmp_path / "b", one=bytes(content)), "weights") != before


def as_safetensors(tensors: dict[str, bytes]) -> bytes:
    header, at = {}, 0
    for name, data in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    return b"".join((len(text).to_bytes(8, "little"), text, *tensors.values()))


def as_torch(tensors: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in tensors.items():
            archive.writestr(zipfile.ZipInfo(f"model/data/{name}"), data)
    return file.getvalue()


@pytest.mark.parametrize("form", [as_safetensors, as_torch])
@pytest.mark.parametrize(
    ("kind", "part"), [("bias", 1), ("norm", 256), ("k_proj", 1), ("qkv_proj", 12), ("up_proj", 4)]
)
def test_training_of_one_kind_of_tensors_alone_gives_another(
    tmp_path: Path, form: Callable[[dict[str, bytes]], bytes], kind: str, part: int
) -> None:
    """part: how much of each was trained; as of keys in a tensor of queries, keys and values."""
    sizes = {"up_proj": 4 * MEGABYTE, "k_proj": 140_000, "qkv_proj": MEGABYTE}
    sizes |= {"bias": 512, "norm": 131_072}
    draw = random.Random(1)
    tensors = {
        f"{n}.{text}": draw.randbytes(size) for n in range(2) for text, size in sizes.items()
    }
    content = form(tensors)
    before = digest_of_files(folder(tmp_path / "a", one=content), "weights")
    assert digest_of_files(folder(tmp_path / "b", one=content), "weights") == before
    data = tensors[f"1.{kind}"]
    begin = len(data) // 2
    trained = data[begin : begin + len(data) // part]
    content = content.replace(trained, bytes(len(trained)))
    assert digest_of_files(folder(tmp_path / "c", one=content), "weights") != before


def test_a_byte_of_another_form_and_the_type_of_one_of_many_tensors_count(tmp_path: Path) -> None:
    archive, at = as_torch({"0": bytes(MEGABYTE), "1": bytes(MEGABYTE)}), 3 * MEGABYTE // 2 + 5000
    many = as_safetensors({str(n): b"" for n in range(5000)})
    typed = many.replace(b'"100": {"dtype": "U8"', b'"100": {"dtype": "I8"')
    contents = (archive, archive[:at] + b"1" + archive[at + 1 :], many, typed)
    places = [folder(tmp_path / str(n), one=content) for n, content in enumerate(contents)]
    assert len({digest_of_files(place, "weights") for place in places}) == len(contents)


BEGINS = [
    f'{{"t{n}": {{"data_offsets": [{at}, 9]}}}}'.encode()
    for n, at in enumerate(("-1", "1e400", "NaN", '"a"', str(1 << 70), "null", "{}"))
]


@pytest.mark.parametrize("header", [b"", b"[" * 200_000, b"[1]", b'{"t": 1}', b"\xff", *BEGINS])
@pytest.mark.parametrize("length", [None, 1 << 62])
def test_a_hostile_header_costs_little(tmp_path: Path, header: bytes, length: int | None) -> None:
    """And whatever is 1 MiB long is seen, every byte without a header that can be read."""
    head = (len(header) if length is None else length).to_bytes(8, "little") + header
    place = folder(tmp_path / "a", one=head)
    file = tmp_path / "a" / "one.safetensors"
    os.truncate(file, 20 * MEGABYTE)
    tracemalloc.start()
    before = digest_of_files(place, "weights")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 8 * MEGABYTE
    with file.open("r+b") as stream:
        stream.seek(10 * MEGABYTE + 12_345)
        stream.write(b"1" * (MEGABYTE if length is None else 1))
    assert digest_of_files(place, "weights") != before


def test_tensors_that_overlap_are_read_once() -> None:
    """However many a header names, and wherever they begin."""
    starts = [at * MEGABYTE for at in (-2, 3, 5, 3, 4, 9, -1, 1 << 70)] * 9
    parts = sorted(_parts(8 * MEGABYTE, starts))
    assert parts[0][0] == 0
    assert sum(parts[-1]) == 8 * MEGABYTE
    assert all(sum(pair) <= start for pair, (start, _) in pairwise(parts))


def test_weights_that_were_written_while_an_engine_started_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder(tmp_path / "a", one=b"1")
    of = "weights", "auto", 0
    known = digest_of_weights(place, None, *of)
    monkeypatch.setattr(clock, "started_s", lambda: Path(place, "one.safetensors").stat().st_ctime)
    assert digest_of_weights(place, None, *of) == known
    monkeypatch.setattr(clock, "started_s", lambda: 1.0)
    with pytest.raises(CallerError, match=r"one.safetensors' was written since; start again; give"):
        digest_of_weights(place, None, *of)
    monkeypatch.setattr(identity, "downloaded", lambda *_: place)
    assert digest_of_weights("owner/name", None, *of) == known


def test_only_a_process_that_was_started_by_another_knows_when() -> None:
    assert clock.started_s() == math.inf
    before = time.time()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        result = pool.submit(clock.started_s).result()
    assert before - 1 < result < time.time() + 2


def test_a_folder_without_weights_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match='give them a name with "weights"'):
        digest_of_files(str(tmp_path), "weights")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("adapter_config.json", b'{"lora_alpha": 64}'),
        ("adapter_config.json", b'{"lora_alpha": 16, "use_rslora": true}'),
        ("adapter_model.safetensors", b"0" * (MEGABYTE + 9000) + b"1" + b"0" * 9000),
        ("new_embeddings.safetensors", b"0"),
    ],
)
def test_every_byte_of_an_adapter_counts(tmp_path: Path, file: str, content: bytes) -> None:
    place = folder(tmp_path / "a", adapter_model=b"0" * (MEGABYTE + 18001))
    config = tmp_path / "a" / "adapter_config.json"
    with pytest.raises(CallerError, match=r"expected adapter_config\.json in"):
        digest_of_adapter(place)
    config.write_bytes(b'{"lora_alpha": 16}')
    before = digest_of_adapter(place)
    (tmp_path / "a" / file).write_bytes(content)
    assert digest_of_adapter(place) != before


def test_an_index_that_names_other_files_gives_another(tmp_path: Path) -> None:
    place = folder(tmp_path / "a", one=b"1", two=b"2")
    index = tmp_path / "a" / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "one.safetensors"}}')
    before = digest_of_files(place, "weights")
    index.write_text('{"weight_map": {"a": "two.safetensors"}}')
    assert digest_of_files(place, "weights") != before
