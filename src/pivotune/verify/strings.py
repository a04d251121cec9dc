"""When two strings mean the same: normal forms, formats by meaning, paths.

Word overlap is not used: it accepts `rm a.txt` for `cat a.txt`.
"""

import re
import unicodedata
from collections.abc import Callable, Hashable
from datetime import UTC, date, datetime, time
from urllib.parse import quote, unquote, urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443, "ftp": 21, "ws": 80, "wss": 443}
_SLASHES = re.compile(r"/{2,}")
_HERE = re.compile(r"(?<=/)\./|/\.$")
_ESCAPE = re.compile(r"%([0-9a-fA-F]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_RESERVED = "!#$%&'()*+,/:;=?@[]~"


def normalise(text: str) -> str:
    """Unicode NFC, trimmed, runs of white space as one space. Case is kept."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def normalise_path(path: str) -> str:
    """Without doubled slashes, `/./` and a leading `./`; `..` stays (links make it matter)."""
    if "://" in path:
        return path
    previous = ""
    while previous != path:
        previous = path
        path = _HERE.sub("", _SLASHES.sub("/", path)) or "/"
    while path.startswith("./") and len(path) > 2:
        path = path[2:].lstrip("/")
    return path


def read_date(text: str) -> Hashable | None:
    """RFC 3339 full-date; None where it is none."""
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        return None


def read_datetime(text: str) -> Hashable | None:
    """An instant, or a local time where there is no offset; the two are never equal."""
    try:
        value = datetime.fromisoformat(text.strip().upper())
    except ValueError:
        return None
    if value.tzinfo is None:
        return ("local", value)
    try:
        return ("instant", value.astimezone(UTC))
    except OverflowError:
        return None


def read_time(text: str) -> Hashable | None:
    """A time of day with its offset, if any."""
    try:
        value = time.fromisoformat(text.strip().upper())
    except ValueError:
        return None
    return (value.replace(tzinfo=None), value.utcoffset())


def read_email(text: str) -> Hashable | None:
    """The local part as it is, the domain without case."""
    local, at, domain = text.strip().rpartition("@")
    return (local, domain.lower().rstrip(".")) if at and local and domain else None


def read_uri(text: str) -> Hashable | None:
    """RFC 3986 normal form: case of scheme and host, default port, escapes, empty path."""
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        return None
    if not parts.scheme:
        return None
    scheme = parts.scheme.lower()
    user, at, _ = parts.netloc.rpartition("@")
    host = (parts.hostname or "").lower()
    path = _normal_escapes(parts.path)
    if parts.netloc and not path:
        path = "/"
    return (
        scheme,
        (user, at),
        host,
        None if port == _DEFAULT_PORTS.get(scheme) else port,
        path,
        _normal_escapes(parts.query),
        _normal_escapes(parts.fragment),
    )


def _normal_escapes(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        character = unquote(match.group(0), errors="strict") if match.group(1) < "8" else ""
        return character if character in _UNRESERVED and character else match.group(0).upper()

    return quote(_ESCAPE.sub(plain, unicodedata.normalize("NFC", text)), safe=_RESERVED)


FORMATS: dict[str, Callable[[str], Hashable | None]] = {
    "date": read_date,
    "date-time": read_datetime,
    "time": read_time,
    "email": read_email,
    "idn-email": read_email,
    "uri": read_uri,
    "url": read_uri,
    "iri": read_uri,
    "uri-reference": read_uri,
    "uuid": lambda text: text.strip().lower(),
}

PATH_FORMATS = frozenset({"path", "file-path", "directory-path"})
PATH_NAMES = frozenset(
    {"path", "file_path", "filepath", "filename", "file_name", "dir", "directory", "cwd", "workdir"}
)
