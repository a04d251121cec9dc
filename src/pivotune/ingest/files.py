"""Files to rows: plain, gzip or zstd; JSON Lines, a JSON list, one document, Parquet, plain text.

Rows are read one at a time, so memory stays at the size of a few rows. What cannot be read is a
`BadRow` with a named reason, and reading goes on where the format lets it: after a broken line
always, after a broken element of a JSON list never (nothing says where the next one starts).
"""

import codecs
import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from pivotune.core.errors import DataError
from pivotune.core.json_text import JsonProblemError, check_surrogates

MAX_ROW_BYTES = 64 << 20
SUFFIXES = frozenset({".json", ".jsonl", ".ndjson", ".traj", ".parquet"})
COMPRESSED = frozenset({".gz", ".gzip", ".zst", ".zstd"})

_CHUNK = 1 << 20
_ZSTD_INPUT = 256  # bytes fed at a time: 256 can already expand to 8 MiB
_SPACE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"


class Row(NamedTuple):
    """One decoded value; `number` and `line` count from 1."""

    number: int
    line: int
    value: Any


class BadRow(NamedTuple):
    """A row that could not be decoded."""

    number: int
    line: int
    reason: str
    detail: str


class _DamagedError(Exception):
    """The rest of the file cannot be read."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


class _Decompressor(Protocol):
    """What zlib and zstandard share."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


@runtime_checkable
class _Copied(_Decompressor, Protocol):
    """What zlib has besides."""

    def copy(self) -> _Decompressor: ...


def find_files(paths: Iterable[Path]) -> tuple[list[Path], list[Path]]:
    """Files to read, in a stable order, and files of a folder that are no traces by their name.

    Raises `DataError` for a path that does not exist.
    """
    found: list[Path] = []
    skipped: list[Path] = []
    for path in paths:
        if path.is_dir():
            for file in sorted(item for item in path.rglob("*") if item.is_file()):
                (found if _is_trace_name(file) else skipped).append(file)
        elif path.exists():
            found.append(path)
        else:
            raise DataError("no such file or folder", where=str(path), fix="check the path")
    return found, skipped


def _is_trace_name(path: Path) -> bool:
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return bool(suffixes) and suffixes[-1] in SUFFIXES and not path.name.startswith(".")


def read_rows(path: Path) -> Iterator[Row | BadRow]:
    """Every row of a file in order; raises `DataError` only when it cannot be opened."""
    if _magic(path)[:4] == b"PAR1":
        yield from _read_parquet(path)
        return
    chunks = _chunks(path)
    try:
        head = _first_text(chunks)
    except _DamagedError as error:
        yield BadRow(1, 1, error.reason, error.detail)
        return
    if not head.strip():
        yield BadRow(1, 1, "empty file", "there is nothing in it")
        return
    text = chain([head], chunks)
    if path.suffix == ".txt":
        yield from _read_text(text)
    elif head.lstrip(_SPACE).startswith(b"[") and not _is_lines_of_lists(head):
        yield from _read_values(text, in_list=True)
    elif _is_document(head):
        yield from _read_values(text, in_list=False)
    else:
        yield from _read_lines(text)


def _magic(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(8)
    except OSError as error:
        raise DataError(f"cannot be opened: {error.strerror}", where=str(path)) from error


def _chunks(path: Path) -> Iterator[bytes]:
    """Decompressed bytes; raises `_DamagedError` where a compressed stream breaks off."""
    magic = _magic(path)
    if magic[:2] == b"\x1f\x8b":
        yield from _decompress(path, "gzip", _CHUNK >> 4)
    elif magic[:4] == b"\x28\xb5\x2f\xfd":
        yield from _decompress(path, "zstd", _ZSTD_INPUT)
    else:
        yield from _raw(path, _CHUNK)


def _raw(path: Path, size: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(size):
            yield chunk


def _decompress(path: Path, kind: str, size: int) -> Iterator[bytes]:
    stream = _new_stream(path, kind)
    started = False
    try:
        for data in _raw(path, size):
            while data:
                if not started and not data.strip(b"\0"):
                    break  # padding behind the last member
                started = True
                yield from _decompressed(stream, data)
                if not stream.eof:
                    break
                data = stream.unused_data  # noqa: PLW2901  another member of the same file
                stream, started = _new_stream(path, kind), False
    except Exception as error:
        if isinstance(error, (zlib.error, *_zstd_errors())):
            raise _DamagedError(f"damaged {kind}", str(error)) from error
        raise
    if started:
        raise _DamagedError(f"truncated {kind}", "the compressed file ends in the middle")


def _decompressed(stream: _Decompressor, data: bytes) -> Iterator[bytes]:
    """What is good before a damaged place comes out too: the piece is read again byte by byte."""
    spare = stream.copy() if isinstance(stream, _Copied) else None
    try:
        yield stream.decompress(data)
    except zlib.error:
        good: list[bytes] = []
        with suppress(zlib.error):
            good.extend(spare.decompress(data[i : i + 1]) for i in range(len(data)) if spare)
        yield b"".join(good)
        raise


def _new_stream(path: Path, kind: str) -> _Decompressor:
    if kind == "gzip":
        return zlib.decompressobj(wbits=31)
    try:
        import zstandard
    except ImportError as error:
        raise DataError(
            "a zstd file needs the package zstandard",
            where=str(path),
            fix="pip install 'pivotune[traces]'",
        ) from error
    stream: _Decompressor = zstandard.ZstdDecompressor().decompressobj()
    return stream


def _zstd_errors() -> tuple[type[Exception], ...]:
    try:
        import zstandard
    except ImportError:
        return ()
    return (zstandard.ZstdError,)


def _first_text(chunks: Iterator[bytes]) -> bytes:
    """The chunks up to the first with something other than space in it, without a mark."""
    head = b""
    for chunk in chunks:
        head = (head + chunk).removeprefix(_BOM)
        if head.strip(_SPACE):
            return head
        head = head[-(1 << 16) :]
    return b""


def _is_document(head: bytes) -> bool:
    """A JSON object spread over lines, rather than one object a line."""
    lines = head.lstrip(_SPACE).split(b"\n", 2)
    if not lines[0].startswith(b"{") or len(lines) == 1:
        return False
    try:
        msgspec.json.decode(lines[0])
    except (msgspec.DecodeError, RecursionError):
        return not lines[1].lstrip(b" \t").startswith(b"{")
    return False


def _is_lines_of_lists(head: bytes) -> bool:
    """One JSON list a line, rather than one list for the whole file."""
    first, _, rest = head.lstrip(_SPACE).partition(b"\n")
    return first.rstrip(_SPACE).endswith(b"]") and rest.lstrip(_SPACE).startswith(b"[")


def _read_lines(chunks: Iterable[bytes]) -> Iterator[Row | BadRow]:
    line = 0
    try:
        for text in _split_lines(chunks):
            line += 1
            if text is None:
                detail = f"more than {MAX_ROW_BYTES >> 20} MiB in one line"
                yield BadRow(line, line, "row too long", detail)
            elif text.strip():
                yield _decode_line(text, line)
    except _DamagedError as error:
        yield BadRow(line + 1, line + 1, error.reason, error.detail)


def _split_lines(chunks: Iterable[bytes]) -> Iterator[bytes | None]:
    """Lines without their end; None for one that is longer than a row may be.

    Of a stream that breaks off, the line that it breaks off in is given only if it is whole.
    """
    parts: list[bytes] = []
    size = 0
    try:
        for chunk in chunks:
            *complete, rest = chunk.split(b"\n")
            for text in complete:
                size += len(text)
                yield b"".join([*parts, text]) if size <= MAX_ROW_BYTES else None
                parts, size = [], 0
            size += len(rest)
            parts = [*parts, rest] if size <= MAX_ROW_BYTES else []
    except _DamagedError:
        if isinstance(_decode_line(b"".join(parts), 0), Row):
            yield b"".join(parts)
        raise
    if size:
        yield b"".join(parts) if size <= MAX_ROW_BYTES else None


def _decode_line(text: bytes, line: int) -> Row | BadRow:
    try:
        return Row(line, line, msgspec.json.decode(text))
    except RecursionError:
        return BadRow(line, line, "nested too deeply", _start_of(text))
    except msgspec.DecodeError as error:
        return _decode_slowly(text, line, str(error))


def _decode_slowly(text: bytes, line: int, problem: str) -> Row | BadRow:
    """The standard parser also takes NaN, which is common in logged metrics."""
    try:
        decoded = text.decode()
    except UnicodeDecodeError as error:
        return BadRow(line, line, "invalid UTF-8", f"at byte {error.start + 1} of the line")
    try:
        value = json.loads(decoded)
        check_surrogates(value)
    except JsonProblemError as error:
        return BadRow(line, line, "text that is not Unicode", str(error))
    except json.JSONDecodeError as error:
        return BadRow(line, line, "broken JSON", f"{error.msg} at column {error.colno}")
    except RecursionError:
        return BadRow(line, line, "nested too deeply", _start_of(text))
    except ValueError:
        return BadRow(line, line, "broken JSON", problem)
    return Row(line, line, value)


def _start_of(text: bytes) -> str:
    return text[:60].decode(errors="replace")


def _read_text(chunks: Iterable[bytes]) -> Iterator[Row | BadRow]:
    """A plain text file is one row, `{"text": …}`."""
    parts: list[bytes] = []
    try:
        for chunk in chunks:
            parts.append(chunk)
            if sum(map(len, parts)) > MAX_ROW_BYTES:
                yield BadRow(1, 1, "row too long", f"more than {MAX_ROW_BYTES >> 20} MiB of text")
                return
        yield Row(1, 1, {"text": b"".join(parts).decode()})
    except UnicodeDecodeError as error:
        yield BadRow(1, 1, "invalid UTF-8", f"at byte {error.start + 1}")
    except _DamagedError as error:
        yield BadRow(1, 1, error.reason, error.detail)


class _Buffer:
    """Decoded text of a stream, of which the front is dropped as values are taken."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._damage: _DamagedError | None = None
        self.text = ""
        self.position = 0
        self.line = 1

    def grow(self, at_least: int = 1) -> bool:
        """Read on; False at the end. Raises `_DamagedError`, also for invalid UTF-8, once all
        that stands before the damage has been given."""
        parts: list[str] = []
        size = 0
        try:
            for chunk in self._chunks if self._damage is None else ():
                parts.append(self._utf8.decode(chunk))
                size += len(parts[-1])
                if size >= at_least:
                    break
        except UnicodeDecodeError as error:
            parts.append(error.object[: error.start].decode())
            self._damage = _DamagedError("invalid UTF-8", f"{error.reason}; the rest is lost")
        except _DamagedError as error:
            self._damage = error
        read = "".join(parts)
        if self._damage is not None and not read:
            raise self._damage
        self.text = self.text[self.position :] + read
        self.position = 0
        return bool(read)

    def advance(self, end: int) -> None:
        self.line += self.text.count("\n", self.position, end)
        self.position = end

    def skip(self, characters: str) -> str:
        """Go over the characters; the next other one, or "" at the end."""
        while True:
            end = self.position
            while end < len(self.text) and self.text[end] in characters:
                end += 1
            self.advance(end)
            if end < len(self.text):
                return self.text[end]
            if not self.grow():
                return ""


def _read_values(chunks: Iterable[bytes], *, in_list: bool) -> Iterator[Row | BadRow]:
    """Elements of one JSON list, or values one after the other."""
    buffer = _Buffer(chunks)
    number = 0
    try:
        buffer.skip(" \t\r\n")
        if in_list:
            buffer.advance(buffer.position + 1)
        while (following := buffer.skip(" \t\r\n,")) not in ("", "]"):
            number += 1
            line = buffer.line
            value, problem = _next_value(buffer)
            if problem:
                yield BadRow(number, line, "text that is not Unicode", problem)
            else:
                yield Row(number, line, value)
        if in_list and not following:
            raise _DamagedError("broken JSON", "the list is never closed: the file was cut off")
        if number == 0:
            yield BadRow(1, 1, "empty file", "a list with nothing in it")
        if in_list:
            buffer.advance(buffer.position + 1)
            if buffer.skip(" \t\r\n"):
                number += 1
                raise _DamagedError("broken JSON", "more text after the end of the list")
    except _DamagedError as error:
        yield BadRow(number, buffer.line, error.reason, error.detail)


def _next_value(buffer: _Buffer) -> tuple[Any, str]:
    """The value at the position, and what is wrong with its text."""
    while True:
        try:
            value, end = _ROW_DECODER.raw_decode(buffer.text, buffer.position)
        except json.JSONDecodeError as error:
            missing = error.pos >= len(buffer.text) - 64 or error.msg.startswith("Unterminated")
            held = len(buffer.text) - buffer.position
            if held > MAX_ROW_BYTES:
                detail = f"more than {MAX_ROW_BYTES >> 20} MiB; the rest of the file is left out"
                raise _DamagedError("row too long", detail) from error
            if missing and buffer.grow(at_least=held):
                continue
            detail = f"{error.msg}; the rest of the file is left out"
            raise _DamagedError("broken JSON", detail) from error
        except (RecursionError, ValueError) as error:  # the latter: a number of too many digits
            reason = "nested too deeply" if isinstance(error, RecursionError) else "broken JSON"
            raise _DamagedError(reason, "the rest of the file is left out") from error
        start = buffer.position
        buffer.advance(end)
        try:
            if buffer.text.find("\\u", start, end) >= 0:
                check_surrogates(value)
        except JsonProblemError as error:
            return None, str(error)
        return value, ""


def _read_parquet(path: Path) -> Iterator[Row | BadRow]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise DataError(
            "a Parquet file needs the package pyarrow",
            where=str(path),
            fix="pip install 'pivotune[traces]'",
        ) from error
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=16):
                for value in batch.to_pylist():
                    number += 1
                    yield Row(number, number, value)
    except (pyarrow.ArrowException, OSError) as error:
        yield BadRow(number + 1, number + 1, "damaged Parquet", str(error).splitlines()[0])


_ROW_DECODER = json.JSONDecoder()
