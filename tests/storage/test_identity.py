"""The digests of weights and adapters follow what is in the files, and not how they are listed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hicache.core.errors import CallerError
from hicache.storage.identity import digest_of_adapter, digest_of_files

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
