"""Files of a run folder: JSON Lines that survive a kill at any byte, and atomic single files.

A log line is complete when it ends in a newline. A torn last line (killed while writing) is
cut off when the log is opened again, so that a stage goes on from the last complete record.
"""

import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pivotune.core.errors import StoreError

if sys.platform != "win32":
    import fcntl

T = TypeVar("T")
_encoder = msgspec.json.Encoder()
_PIECE_BYTES = 1 << 20


def encode_json(value: Any) -> bytes:
    """Compact JSON of any struct or plain value."""
    return _encoder.encode(value)


def write_atomic(path: Path, data: bytes) -> None:
    """Write the whole file or leave the old one; raises `StoreError` when the disk refuses."""
    _write_pieces(path, [data])


def _write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """One piece is held at a time; what the pieces' source raises leaves the old file too.

    Who writes the same file at the same time writes another part: the last to end stays.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with _refusals(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(b"")
        for piece in pieces:
            with _refusals(path), part.open("ab") as file:
                file.write(piece)
        with _refusals(path):
            with part.open("ab") as file:
                os.fsync(file.fileno())
            part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _refused(path, error) from error


def write_json(path: Path, value: Any) -> None:
    """Atomic, indented JSON with a newline at the end."""
    write_atomic(path, msgspec.json.format(_encoder.encode(value), indent=2) + b"\n")


def read_json(path: Path, kind: type[T]) -> T:
    """Raises `StoreError` when the file is missing, damaged or of another shape."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError as error:
        raise StoreError("file not found", where=str(path), fix="run the stage before") from error
    except OSError as error:
        raise _refused(path, error) from error
    except msgspec.DecodeError as error:
        raise StoreError(
            f"damaged file: {error}", where=str(path), fix="delete it and run the stage again"
        ) from error


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Wait for a file's lock and hold it, under a descriptor that a child process may inherit.

    The system frees the lock when the last process that holds it ends. Windows has no such lock:
    there one process works on a folder at a time.
    """
    try:
        file = path.open("ab")
    except OSError as error:
        raise _refused(path, error) from error
    with file:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def write_records(path: Path, records: Iterable[Any]) -> None:
    """Write a whole JSON Lines file atomically, in little memory however long it is."""
    _write_pieces(path, _encode_pieces(records))


def _encode_pieces(records: Iterable[Any]) -> Iterator[bytes]:
    piece = bytearray()
    for record in records:
        piece += _encoder.encode(record) + b"\n"
        if len(piece) >= _PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


def read_records(path: Path, kind: type[T]) -> Iterator[T]:
    """Complete records of a JSON Lines file, in order; a torn last line is left out."""
    decoder = msgspec.json.Decoder(kind)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    yield decoder.decode(line)
                except msgspec.DecodeError as error:
                    raise StoreError(
                        f"damaged record: {error}",
                        where=f"{path}:{number}",
                        got=line[:200].decode(errors="replace"),
                        fix="delete the file and run the stage again",
                    ) from error
    except FileNotFoundError as error:
        raise StoreError("file not found", where=str(path), fix="run the stage before") from error


class AppendLog:
    """A JSON Lines file that grows; opening it cuts a torn last line off."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered: what a full disk refused must not be written later by a close.
            self._file = path.open("ab+", buffering=0)
            self._cut_torn_line()
        except OSError as error:
            raise _refused(path, error) from error

    def _cut_torn_line(self) -> None:
        size = self._file.seek(0, os.SEEK_END)
        end = size
        while end > 0:
            start = max(0, end - 65536)
            self._file.seek(start)
            newline = self._file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end != size:
            self._file.truncate(end)
        self._file.seek(0, os.SEEK_END)

    def append(self, records: Iterable[Any]) -> None:
        """Add records and hand them to the operating system; all or none survive a full disk."""
        size = self.path.stat().st_size
        data = memoryview(b"".join(_encoder.encode(record) + b"\n" for record in records))
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            os.truncate(self.path, size)
            raise _refused(self.path, error) from error

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> "AppendLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _refused(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"the file system refused: {error.strerror or error}",
        where=str(path),
        fix="free space or choose another run folder, then run again: finished work is kept",
    )
