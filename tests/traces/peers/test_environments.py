"""`hicache peers fetch|list`: environments made whole or not at all, from a package index that is a
folder here, and what their processes can import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hicache.core.errors import CallerError
from invariants.peers import facts
from tests.patience import PATIENCE_S
from traces.cli import main
from traces.peers import _borrowed as borrowed
from traces.peers import _fetching as fetching
from traces.peers import _folders as folders
from traces.peers import list as listing
from traces.peers._folders import Made

Capsys = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

PEER = '''"""A peer whose engine cannot be imported here."""

DISTRIBUTION = "made-up"
RELEASES = ("1.0", "1.1")
NEEDS = {"1.1": ("its-need==2.0",)}
UNUSED = ("made_up/*.so",)
'''
NO_ENGINE = '''"""A peer that needs no environment."""

DISTRIBUTION = ""
RELEASES = ("here",)
'''


def write_wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    stem = f"{name}-{version}"
    info = f"{stem}.dist-info"
    told = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{one},,\n" for one in (*files, *told, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        for one, text in (files | told | {f"{info}/RECORD": record}).items():
            wheel.writestr(one, text)


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: Patch) -> Path:
    """The folder of peers, with a package index that has what they need."""
    index = tmp_path / "index"
    index.mkdir()
    for version in ("1.0", "1.1"):
        files = {
            "made_up/__init__.py": f"VERSION = {version!r}",
            "made_up/_C.so": "kernels" * 100,
            f"made_up-{version}.data/purelib/made_up/more.py": "MORE = 1",
            f"made_up-{version}.data/scripts/run": "",
        }
        write_wheel(index, "made_up", version, files)
    write_wheel(index, "its_need", "2.0", {"its_need.py": "VERSION = 2"})
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(index), "NO_CACHE_DIR": "1"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    folder = tmp_path / "engines"
    folder.mkdir()
    (folder / "made_up.py").write_text(PEER)
    (folder / "ours.py").write_text(NO_ENGINE)
    monkeypatch.setattr(facts, "ENGINES", folder)
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def fetch(
    cache: Path, name: str = "made-up==1.1", source: Path | None = None
) -> tuple[Made, list[str]]:
    found, release = folders.chosen(name)
    told: list[str] = []
    return fetching.fetch(cache, found, release, source, told.append), told


def names_in(cache: Path) -> list[str]:
    return sorted(one.name for one in cache.iterdir() if one.name != "links")


def test_an_environment_has_the_wheel_and_its_needs(engines: Path, cache: Path) -> None:
    made, told = fetch(cache)
    site, needs = cache / "made-up-1.1/site", cache / "made-up-1.1/needs"
    assert sorted(one.name for one in (site / "made_up").iterdir()) == ["__init__.py", "more.py"]
    assert (needs / "its_need.py").is_file()
    assert (made.left_out_files, made.left_out_bytes) == (1, 700)
    assert made.needs == {"its-need": "2.0"}
    assert made.bytes > made.files > 3
    assert names_in(cache) == ["made-up-1.1"]
    assert sorted(one.name for one in site.parent.iterdir()) == ["needs", "peer.json", "site"]
    assert told == [
        "download made-up==1.1",
        "unpack it",
        "install what it needs (1 packages)",
    ]
    assert folders.read(cache / "made-up-1.1") == made


def test_nothing_has_the_name_until_it_is_whole_and_the_next_fetch_goes_on(
    engines: Path, cache: Path
) -> None:
    (engines / "made_up.py").write_text(PEER.replace("its-need==2.0", "its-need==3.0"))
    with pytest.raises(CallerError, match=r"^made-up==1\.1: expected pip to install .*; there is"):
        fetch(cache)
    assert names_in(cache) == [".part-made-up-1.1"]
    why = listing.listed(cache)["environments"]
    assert [(one["wrong"], one["record"]) for one in why] == [("not whole", None)]
    with pytest.raises(CallerError, match="found none; make it with: hicache peers fetch"):
        folders.environment_of("made-up", folder=str(cache))
    index = engines.parent / "index"
    write_wheel(index, "its_need", "3.0", {"its_need.py": "VERSION = 3"})
    made, told = fetch(cache)
    assert told == ["install what it needs (1 packages)"]
    assert (made.needs, made.left_out_files) == ({"its-need": "3.0"}, 1)
    assert names_in(cache) == ["made-up-1.1"]


def test_what_was_begun_for_other_needs_is_begun_again(engines: Path, cache: Path) -> None:
    (engines / "made_up.py").write_text(PEER.replace("its-need==2.0", "its-need==3.0"))
    with pytest.raises(CallerError):
        fetch(cache)
    (engines / "made_up.py").write_text(PEER)
    _, told = fetch(cache)
    assert len(told) == 3


def test_a_wheel_that_there_is_not(engines: Path, cache: Path) -> None:
    text = PEER.replace('"1.1")', '"1.2")').replace('"1.1":', '"1.2":')
    (engines / "made_up.py").write_text(text)
    with pytest.raises(CallerError) as error:
        fetch(cache, "made-up==1.2")
    told = str(error.value)
    assert told.startswith("made-up==1.2: expected pip to download made-up==1.2, found: No match")
    assert "\n" not in told


def test_two_fetches_do_not_mix(engines: Path, cache: Path) -> None:
    draft = cache / ".part-made-up-1.1"
    with (
        fetching._drafted(draft, "first"),
        pytest.raises(CallerError, match=r"^made-up==1\.1: .* found another hicache peers fetch"),
    ):
        fetch(cache)
    fetch(cache)


def test_fetching_again_replaces_it(engines: Path, cache: Path) -> None:
    fetch(cache)
    (cache / "made-up-1.1/site/made_up/__init__.py").write_text("spoilt")
    fetch(cache)
    assert "VERSION" in (cache / "made-up-1.1/site/made_up/__init__.py").read_text()
    assert names_in(cache) == ["made-up-1.1"]


def test_a_member_of_a_wheel_stays_inside() -> None:
    assert fetching._place("../evil.py") is None
    assert fetching._place("/evil.py") is None
    assert fetching._place("a/../../evil.py") is None
    assert str(fetching._place("x-1.data/platlib/x/y.py")) == "x/y.py"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("made_up", "PEER: expected one of made-up, ours, found 'made_up'; did you mean made-up?"),
        ("made-up==1.5", "made-up: expected a release that its peer knows (1.0, 1.1), found '1.5'"),
        ("ours==1", "ours: expected a release that its peer knows (here), found '1'"),
    ],
)
def test_unknown_peers_and_releases(engines: Path, name: str, said: str) -> None:
    with pytest.raises(CallerError) as error:
        folders.chosen(name)
    assert str(error.value).startswith(said)


def test_without_a_release_it_is_the_newest(engines: Path) -> None:
    assert folders.chosen("made-up")[1] == "1.1"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"python": "3.9"}, "found one for Python 3.9, and this is"),
        ({"needs": {"its-need": "1.0"}}, "found one that an older version of the peer needed"),
        ({"bytes": "many"}, "found one whose record is damaged"),
    ],
)
def test_an_environment_that_cannot_be_used(
    engines: Path, cache: Path, change: dict[str, Any], said: str
) -> None:
    fetch(cache)
    record = cache / "made-up-1.1/peer.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | change))
    with pytest.raises(CallerError) as error:
        folders.environment_of("made-up==1.1", folder=str(cache))
    assert said in str(error.value)
    assert str(error.value).endswith(f"hicache peers fetch made-up==1.1 --folder {cache}")


def run_child(path: list[str], program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-c", program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SEEN = """
from importlib.util import find_spec
print([name for name in NAMES if find_spec(name)])
"""


def test_a_process_sees_its_peer_what_it_borrows_and_nothing_else(
    engines: Path, cache: Path
) -> None:
    pytest.importorskip("torch", exc_type=ImportError)
    fetch(cache)
    environment = folders.environment_of("made-up", folder=str(cache))
    path = borrowed.child_path(environment, str(cache))
    wanted = ["hicache", "invariants", "sim", "numpy", "simpy", "torch", "made_up", "its_need"]
    others = ["pytest", "mypy", "pip", "traces", "tests", "transformers"]
    assert run_child(path, f"NAMES = {wanted + others}{SEEN}") == str(wanted)
    told = "import made_up, its_need, torch, importlib.metadata as m\nprint(made_up.VERSION, "
    assert run_child(path, f"{told}m.version('made-up'), m.version('its-need'))") == "1.1 1.1 2.0"
    assert borrowed.child_path(environment, str(cache)) == path


def test_a_peer_that_needs_no_environment_borrows_no_torch(engines: Path, cache: Path) -> None:
    environment = folders.environment_of("ours", folder=str(cache))
    path = borrowed.child_path(environment, str(cache))
    names = ["hicache", "numpy", "torch"]
    assert run_child(path, f"NAMES = {names}{SEEN}") == "['hicache', 'numpy']"


@pytest.mark.parametrize("under", ["", "python", "src"])
def test_a_checkout_in_place_of_a_wheel(engines: Path, cache: Path, under: str) -> None:
    pytest.importorskip("torch", exc_type=ImportError)
    checkout = engines.parent / "checkout"
    package = checkout / under / "made_up"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("VERSION = 'mine'")
    (package.parent / "numpy.py").write_text("raise AssertionError('beside the package')")
    made, told = fetch(cache, source=checkout)
    assert told == ["install what it needs (1 packages)"]
    assert made.source == str(checkout)
    environment = folders.environment_of("made-up", str(checkout), str(cache))
    path = borrowed.child_path(environment, str(cache))
    assert run_child(path, "import numpy, made_up\nprint(made_up.VERSION)") == "mine"


def test_a_checkout_without_the_package(engines: Path, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(
        CallerError, match=r"^--source: expected a checkout with the package made_u"
    ):
        fetch(cache, source=tmp_path)
    assert not cache.exists()


def test_links_to_what_is_gone_are_removed(cache: Path, tmp_path: Path) -> None:
    target = tmp_path / "there"
    target.touch()
    first = borrowed.linked(cache, {"one": target})
    assert borrowed.linked(cache, {"one": target}) == first
    target.unlink()
    second = borrowed.linked(cache, {"two": tmp_path})
    assert [one.name for one in cache.iterdir()] == [second.name]


def test_the_commands(engines: Path, cache: Path, capsys: Capsys) -> None:
    pytest.importorskip("torch", exc_type=ImportError)
    where = ["--folder", str(cache)]
    assert main(["peers", "list", *where]) == 0
    assert capsys.readouterr().out.startswith("No environment is in")
    assert main(["peers", "fetch", "made-up==1.1", "made-up==1.0", "ours", *where]) == 0
    out, err = capsys.readouterr()
    assert [line.partition(": ")[0] for line in out.splitlines()] == [
        "made-up==1.1",
        "made-up==1.0",
        "ours==here",
    ]
    assert "made-up==1.0: unpack it" in err.splitlines()
    assert main(["peers", "fetch", "made-up==1.1", *where]) == 0
    assert "is there already" in capsys.readouterr().out
    assert main(["peers", "list", "--json", "-", *where]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert [(one["record"]["release"], one["wrong"]) for one in document["environments"]] == [
        ("1.0", ""),
        ("1.1", ""),
    ]
    assert document["peers"][0]["releases"] == ["1.0", "1.1"]
    assert "made-up==1.1" in err
    assert "1.0, 1.1" in err
    assert main(["peers", "fetch", "made-up==7", *where]) == 2
    assert "a release that its peer knows (1.0, 1.1), found '7'" in capsys.readouterr().err


def test_an_environment_is_of_every_peer_that_runs_in_it(engines: Path, cache: Path) -> None:
    fetch(cache, "made-up==1.0")
    (engines / "older.py").write_text('LIKE = "made_up"\nRELEASES = ("1.0",)\nNEEDS = ()\n')

    def there() -> list[tuple[str, list[str]]]:
        return [(one["wrong"], one["peers"]) for one in listing.listed(cache)["environments"]]

    assert there() == [("", ["made-up", "older"])]
    (engines / "made_up.py").write_text(PEER.replace('("1.0", "1.1")', '("1.1",)'))
    assert there() == [("", ["older"])]
    (engines / "older.py").unlink()
    assert there() == [("of a peer or release that is not known any more", [])]


def test_without_torch_the_command_says_how_to_install_it(monkeypatch: Patch) -> None:
    monkeypatch.setattr(borrowed, "TORCH", "torch-that-is-not-there")
    with pytest.raises(CallerError, match=r"pip install 'hicache\[torch\]'$"):
        borrowed.check_torch()
