"""The constants at the head of a peer's file: read without importing it, and by release."""

from __future__ import annotations

from pathlib import Path

import pytest

from invariants.peers import engines, facts

FILE = '''"""A peer."""

import an_engine_that_is_not_installed

DISTRIBUTION = "made-up"
RELEASES: tuple[str, ...] = ("1.0", "1.1", "1.2", "2.0")
NEEDS = {"..1.1": ("one==1",), "1.1..": ("two[all]==2",), "2.0": ("three==3",)}
STUBS = ("kernels",)
BARE = ()
UNUSED = {"1.0..1.2": ("made_up/*.so",)}
OTHER = an_engine_that_is_not_installed.VALUE
'''


def read(folder: Path, text: str) -> facts.Facts:
    file = folder / "made_up.py"
    file.write_text(text)
    return facts.read(file)


def test_the_file_is_not_imported(tmp_path: Path) -> None:
    found = read(tmp_path, FILE)
    assert (found.name, found.distribution, found.package) == ("made-up", "made-up", "made_up")
    assert found.stubs("1.0") == ("kernels",)
    assert found.bare("1.0") == ()


@pytest.mark.parametrize(
    ("release", "needs"),
    [
        ("1.0", ("one==1",)),
        ("1.1", ("one==1", "two[all]==2")),
        ("1.2", ("two[all]==2",)),
        ("2.0", ("two[all]==2", "three==3")),
    ],
)
def test_constants_by_release(tmp_path: Path, release: str, needs: tuple[str, ...]) -> None:
    assert read(tmp_path, FILE).needs(release) == needs


def test_what_is_unused_may_differ_by_release(tmp_path: Path) -> None:
    found = read(tmp_path, FILE)
    assert found.is_unused("1.2", "made_up/kernels/_C.so")
    assert not found.is_unused("1.2", "made_up/tree.py")
    assert not found.is_unused("2.0", "made_up/_C.so")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('DISTRIBUTION = "made-up"', "", "DISTRIBUTION is no text"),
        ('("1.0", "1.1", "1.2", "2.0")', "()", "RELEASES is no tuple of texts"),
        ('("kernels",)', '"kernels"', "STUBS is no tuple of texts"),
        ('("kernels",)', "frozenset(KERNELS)", "STUBS is no literal value"),
        ('"..1.1"', '"..1.5"', "NEEDS has '..1.5', which RELEASES has not"),
        ("three==3", "three>=3", "NEEDS has 'three>=3', which names no exact version"),
    ],
)
def test_what_a_file_must_say(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(facts.Misstated, match=f"^made-up: .*{said}$"):
        read(tmp_path, FILE.replace(old, new))


def test_every_peer_says_it() -> None:
    assert [str(facts.ENGINES)] == list(engines.__path__)
    for file in facts.known().values():
        facts.read(file)


def test_a_peer_like_another_has_its_constants_and_its_environment(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        'DISTRIBUTION = "engine"\nRELEASES = ("1.0",)\nNEEDS = ("need==2",)\nSTUBS = ("gpu",)\n'
    )
    (tmp_path / "other.py").write_text('LIKE = "one"\nSTUBS = ("gpu", "net")\n')
    found = facts.read(tmp_path / "other.py")
    assert (found.name, found.home) == ("other", "one")
    assert (found.distribution, found.releases) == ("engine", ("1.0",))
    assert found.needs("1.0") == ("need==2",)
    assert found.stubs("1.0") == ("gpu", "net")
    assert facts.read(tmp_path / "one.py").home == "one"
