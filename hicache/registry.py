"""A folder is a registry: the name of an entry is the name of its file.

Lives here: listing and lazily importing the entries of a package, reading the one line that an
entry says of itself, and the error for a name that is not there. Must not live here: what an entry
contains; the package that asks knows that.

Entries are imported only when asked for, so that an entry's dependency (torch, a storage client) is
needed only by those who choose it.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
from collections.abc import Sequence
from types import ModuleType

from hicache.core.errors import CallerError

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_SUMMARY = re.compile(r'^SUMMARY = "(.*)"$', re.MULTILINE)


def names(package: str) -> list[str]:
    """Entries of a package, sorted: its modules but `base` and those with a leading underscore."""
    paths = importlib.import_module(package).__path__
    found = (module.name for module in pkgutil.iter_modules(paths))
    return sorted(
        name.replace("_", "-") for name in found if name != "base" and not name.startswith("_")
    )


def load(package: str, name: str) -> ModuleType:
    """The module of an entry. Raises CallerError for a name that is not in the folder."""
    known = names(package)
    wanted = name.replace("_", "-")
    if not _NAME.fullmatch(name) or wanted not in known:
        raise unknown(package.rpartition(".")[2].replace("_", " "), name, known)
    return importlib.import_module(f"{package}.{wanted.replace('-', '_')}")


def summary(package: str, name: str) -> str:
    """The SUMMARY of an entry, one line in double quotes, read without importing the entry."""
    text = (pkgutil.get_data(package, f"{name.replace('-', '_')}.py") or b"").decode()
    found = _SUMMARY.search(text)
    assert found is not None, f"{package}.{name} has no SUMMARY"
    return found[1]


def unknown(kind: str, name: str, known: Sequence[str]) -> CallerError:
    """The error for a name that does not exist: what does, and the closest of them."""
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return CallerError(f"{kind}: expected one of {', '.join(known)}, found {name!r}{hint}")
