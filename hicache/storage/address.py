"""Addresses of stores, as a person types them, and opening the backend that one names.

A backend is imported when an address names its scheme, so its package is needed only then.
"""

from __future__ import annotations

import re
from typing import Any, cast

from hicache import registry
from hicache.core.errors import CallerError

from .base import Address, Storage, StorageOptions

BACKENDS = "hicache.storage.backends"
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)")
_PASSWORD = re.compile(r"(?<=//)[^/@]*@|(?<=secret_key=)[^&]*")
_MOST = 4096  # characters


def parse(text: str) -> Address:
    """The address in `text`, `scheme:rest`. The scheme may be unknown. Raises CallerError."""
    found = _ADDRESS.fullmatch(text)
    if len(text) > _MOST or not text.isprintable() or found is None or not found[2]:
        example = f"; for a folder write file:{text}" if text.startswith(("/", ".", "~")) else ""
        raise CallerError(
            f"storage: expected SCHEME:REST such as file:DIR, found {text[:80]!a}"
            f"{example or '; known schemes: ' + ', '.join(schemes())}"
        )
    return Address(found[1].lower(), found[2])


def schemes() -> list[str]:
    """The schemes that `open_storage` knows."""
    return registry.names(BACKENDS)


def shown(address: Address) -> str:
    """The address for a message: without the user's name, password and secret key."""
    return _PASSWORD.sub("", address.text)


def open_storage(address: Address, options: StorageOptions) -> Storage:
    """Open the store, without checks of what it returns; `opening` puts those around it.

    Raises CallerError for what `backend` refuses, and for what the backend says that a person can
    mend."""
    return cast(Storage, backend(address.scheme).open_storage(address, options))


def backend(scheme: str) -> Any:
    """The module of this scheme. Raises CallerError for an unknown one, and for one whose package,
    or a library of the system that its package needs, is not installed."""
    if scheme not in schemes():
        raise registry.unknown("storage", scheme, schemes())
    try:
        return registry.load(BACKENDS, scheme)
    except ImportError as error:
        if (error.name or "").startswith("hicache"):
            raise
        mend = f"pip install 'hicache[{scheme}]'"
        if not isinstance(error, ModuleNotFoundError):
            mend = "the package is there, so install what it names (docs/storage_backends.md)"
        raise CallerError(
            f"storage: expected what {scheme}: needs, found: {error}; {mend}"
        ) from error
