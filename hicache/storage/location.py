"""The parts of an address that has the form of a URL: //USER:PASSWORD@HOST:PORT/PATH?NAME=VALUE.

Also says what each backend says alike: a server that cannot be reached, an option of the command
line that a store cannot follow.
"""

from __future__ import annotations

import re
import socket
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from hicache.core.errors import CallerError

from .base import Address, StorageOptions

_SIZE = re.compile(r"(\d{1,15})(?:([KMGT])(i?)B?|B)?")


class Location(NamedTuple):
    """query: the values by their names; all names are known."""

    scheme: str
    host: str
    port: int
    user: str
    password: str
    path: str
    query: dict[str, str]

    @property
    def server(self) -> str:
        return f"{self.host}:{self.port}"

    def number(self, name: str, default: int) -> int:
        """A whole number of the query. Raises CallerError."""
        text = self.query.get(name, str(default))
        if not re.fullmatch(r"\d{1,15}", text):
            raise CallerError(f"{self.scheme}: expected {name}=NUMBER, found {text[:40]!a}")
        return int(text)

    def size(self, name: str, default: int) -> int:
        """A number of bytes of the query: 4096, 64Ki, 1G. Raises CallerError."""
        text = self.query.get(name, str(default))
        found = _SIZE.fullmatch(text)
        if found is None or not int(found[1]):
            raise CallerError(
                f"{self.scheme}: expected {name}=BYTES such as 4096, 64Ki or 1G, "
                f"found {text[:40]!a}"
            )
        base = 1024 if found[3] else 1000
        power = " KMGT".index(found[2] or " ")
        return int(found[1]) * int(base**power)


def locate(address: Address, *, port: int, known: tuple[str, ...], form: str) -> Location:
    """The parts of an address. port: where none is given. known: the names of its query. form: an
    example for messages. Raises CallerError."""
    wrong = CallerError(f"storage: expected {form}, found another form of {address.scheme}:")
    try:
        parts = urlsplit(f"{address.scheme}:{address.rest}")
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        found_port = port if parts.port is None else parts.port
    except ValueError:
        raise wrong from None
    if parts.fragment or not (parts.netloc or parts.path):
        raise wrong
    for name, _ in pairs:
        if name not in known:
            raise CallerError(
                f"storage: expected {form} with ?{', '.join(known)} alone, found {name[:40]!a}"
            )
    return Location(
        address.scheme,
        parts.hostname or "",
        found_port,
        unquote(parts.username or ""),
        unquote(parts.password or ""),
        unquote(parts.path),
        dict(pairs),
    )


def probe(where: Location, timeout_s: float) -> None:
    """Raises CallerError if nothing listens at the address."""
    try:
        socket.create_connection((where.host, where.port), timeout_s).close()
    except OSError as error:
        reason = error.strerror or str(error) or f"no answer in {timeout_s:g} s"
        raise CallerError(
            f"storage: expected a server at {where.scheme}://{where.server}, found: {reason}; "
            f"start it, or one to try out: hicache store start {where.scheme}"
        ) from error


def refuse_options(scheme: str, options: StorageOptions, size: str, durable: str = "") -> None:
    """Raises CallerError for options that the store cannot follow. size: what bounds it instead.
    durable: what makes its writes durable instead; empty if they are durable anyway."""
    if options.size_bytes:
        raise CallerError(
            f"storage_size: expected none with {scheme}:, found {options.size_bytes:,}; {size}"
        )
    if options.durable and durable:
        raise CallerError(f"storage_durable: expected none with {scheme}:; {durable}")
