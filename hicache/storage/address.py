"""Addresses of stores, as a person types them, and opening the store that one names.

A backend is imported when an address names its scheme, so its package is needed only then. Here is
also what backends have in common: the parts of an address that has the form of a URL,
//USER:PASSWORD@HOST:PORT/PATH?NAME=VALUE, and a server that cannot be reached.
"""

import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Self, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from hicache import registry
from hicache.core.errors import CallerError

from .base import TIMEOUT_S, Address, Storage, StorageOptions
from .breaker import SLOW_S, Breaker, BreakerOptions
from .checksummed import Checksummed

BACKENDS = "hicache.storage.backends"
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)")
_PASSWORD = re.compile(r"(?<=//)[^/@]*@|(?<=secret_key=)[^&]*")
_MOST = 4096  # characters
_SIZE = re.compile(r"(\d{1,15})(?:([KMGT])(i?)B?|B)?")
_NEARLY = 0.9  # of a time-out: clocks differ


def parse(text: str) -> Address:
    """The address in `text`, `scheme:rest`. The scheme may be unknown. Raises CallerError."""
    match = _ADDRESS.fullmatch(text)
    if len(text) > _MOST or not text.isprintable() or match is None or not match[2]:
        example = f"; for a folder write file:{text}" if text.startswith(("/", ".", "~")) else ""
        raise CallerError(
            f"storage: expected SCHEME:REST such as file:DIR, found {text[:80]!a}"
            f"{example or '; known schemes: ' + ', '.join(schemes())}"
        )
    return Address(match[1].lower(), match[2])


def schemes() -> list[str]:
    """The schemes that `open_storage` knows."""
    return registry.names(BACKENDS)


def shown(address: Address) -> str:
    """The address for a message: without the user's name, password and secret key."""
    return _PASSWORD.sub("", address.text)


def open_storage(address: Address, options: StorageOptions) -> Storage:
    """Open the store, without the checks that `open_store` puts around it. Raises CallerError for
    what a person can mend."""
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


def open_store(
    address: Address,
    options: StorageOptions,
    now: Callable[[], float],
    notice: Callable[[str], None],
    slow_s: float = SLOW_S,
) -> Checksummed:
    """Open a store whose values are checked and whose outages are survived.

    now: seconds of a clock that never goes back. notice: gets a sentence when something is wrong
    with the store, and for each change of its health. slow_s: see `BreakerOptions`. Raises
    CallerError for what a person can mend."""
    store = open_storage(address, options)
    if wrong := store.troubles():
        notice(f"storage: {shown(address)}: {wrong}")
    breaker = BreakerOptions(patience_s=options.timeout_s * _NEARLY, slow_s=slow_s)
    return Checksummed(Breaker(store, shown(address), now, notice, breaker))


class Location(NamedTuple):
    """query: the values by their names; all names are known."""

    scheme: str
    host: str
    port: int
    user: str
    password: str
    path: str
    query: dict[str, str]

    def number(self, name: str, default: int) -> int:
        """A whole number of the query. Raises CallerError."""
        text = self.query.get(name, str(default))
        if not re.fullmatch(r"\d{1,15}", text):
            raise CallerError(f"{self.scheme}: expected {name}=NUMBER, found {text[:40]!a}")
        return int(text)


def bytes_of(value: object, name: str) -> int:
    """A number of bytes from a text: 4096, 64Ki, 1G, 64GB; or a whole number. name: of the setting,
    for the message. Raises CallerError for anything else, and for 0."""
    match = _SIZE.fullmatch(str(value)) if type(value) in (int, str) else None
    if match is None or not int(match[1]):
        raise CallerError(
            f"{name}: expected bytes such as 4096, 64Ki or 1G, found {str(value)[:40]!a}"
        )
    base = 1024 if match[3] else 1000
    power = " KMGT".index(match[2] or " ")
    return int(match[1]) * int(base**power)


def locate(address: Address, *, port: int, known: tuple[str, ...], form: str) -> Location:
    """The parts of an address. port: where none is given. known: the names of its query. form: an
    example for messages. Raises CallerError."""
    try:
        parts = urlsplit(address.text)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        found_port = port if parts.port is None else parts.port
        bare = not parts.query and "?" in address.rest
        if parts.fragment or bare or not (parts.netloc or parts.path):
            raise ValueError
    except ValueError:
        raise CallerError(
            f"storage: expected {form}, found another form of {address.scheme}:"
        ) from None
    for name, _ in pairs:
        if name not in known:
            takes = f"with ?{', '.join(known)} alone" if known else "without a query"
            raise CallerError(f"storage: expected {form} {takes}, found {name[:40]!a}")
    if len(dict(pairs)) < len(pairs):
        raise CallerError(f"storage: expected each name once, found ?{parts.query[:80]}")
    return Location(
        *(address.scheme, parts.hostname or "", found_port),
        *(unquote(parts.username or ""), unquote(parts.password or ""), unquote(parts.path)),
        dict(pairs),
    )


class Folder(NamedTuple):
    """size_bytes: the most that the store may use; 0: as much as there is. durable: a write is
    `DONE` when it survives a power failure, not only the end of the process."""

    path: str
    size_bytes: int
    durable: bool
    query: dict[str, str]


def in_folder(address: Address, options: StorageOptions, *more: str) -> Folder:
    """The parts of the address of a folder, SCHEME:DIR?size=5GB&durable=yes. more: other names of
    its query. A ? of the folder's name is written %3F. Raises CallerError."""
    form = f"{address.scheme}:DIR (in DIR, %3F for a ? and %25 for a %)"
    quoted = replace(address, rest=address.rest.replace("#", "%23"))
    where = locate(quoted, port=0, known=("size", "durable", *more), form=form)
    if where.host or not where.path:
        raise CallerError(f"storage: expected {form}, found {address.text[:80]!a}")
    size, durable = where.query.get("size"), where.query.get("durable", "no")
    if durable not in ("yes", "no"):
        raise CallerError(f"{where.scheme}: expected durable=yes or no, found {durable[:40]!a}")
    size_bytes = 0 if size is None else bytes_of(size, f"{where.scheme}: size")
    return Folder(where.path, size_bytes * options.create, durable == "yes", where.query)


def without_size(address: Address) -> tuple[Address, int]:
    """The address without the size of its query, and that in bytes, or 0. Raises CallerError."""
    path, _, query = address.rest.partition("?")
    pieces = query.split("&")
    sizes = [piece for piece in pieces if piece.startswith("size=")]
    if len(sizes) != 1:  # `locate` refuses more
        return address, 0
    pieces.remove(sizes[0])
    size = bytes_of(sizes[0].removeprefix("size="), f"{address.scheme}: size")
    return replace(address, rest=f"{path}?{'&'.join(pieces)}" if pieces else path), size


def with_size(address: Address, size_bytes: int) -> Address:
    """The address with a size in its query; 0: as it is."""
    text = f"{'&' if '?' in address.rest else '?'}size={size_bytes}" if size_bytes else ""
    return replace(address, rest=address.rest + text)


def probe(where: Location, timeout_s: float) -> None:
    """Raises CallerError if nothing listens at the address."""
    try:
        socket.create_connection((where.host, where.port), timeout_s).close()
    except OSError as error:
        reason = error.strerror or str(error) or f"no answer in {timeout_s:g} s"
        raise CallerError(
            f"storage: expected a server at {where.scheme}://{where.host}:{where.port}, found: "
            f"{reason}; start it, or one to try out (docs/storage_backends.md)"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """What a person tells a connector of its store. weights: what they are called in keys; empty
    for a digest of their files."""

    storage: str = ""
    timeout_s: float = TIMEOUT_S
    weights: str = ""

    @classmethod
    def read(cls, values: Mapping[str, Any], where: str, more: str = "") -> Self:
        """where, more: of the settings, and which others there are, for messages. Raises
        CallerError for a name that is not known, and for a value of another form."""
        texts = {field.name: field.type in ("str", str) for field in fields(cls)}
        for name, value in values.items():
            if name not in texts:
                raise CallerError(
                    f"{where}: expected {', '.join(texts)}{more}, found {name[:40]!a}"
                )
            if texts[name] and not isinstance(value, str):
                raise CallerError(f"{name}: expected a text, found {value!r:.40}")
        made = cls(**values)
        if made.storage:
            parse(made.storage)
        StorageOptions(made.timeout_s)  # raises
        return made

    def open(self, now: Callable[[], float], notice: Callable[[str], None]) -> Checksummed:
        """See `open_store`."""
        return open_store(parse(self.storage), StorageOptions(self.timeout_s), now, notice)
