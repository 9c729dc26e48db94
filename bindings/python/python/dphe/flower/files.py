"""Files that survive a crash: a file is either the old one or the new one."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dphe.errors import StorageError


def write_file(path: Path, data: bytes) -> None:
    """Replace a file, which only its owner can read. It is on the disk when this returns."""
    temporary = path.with_name(f"{path.name}.new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}", "storage") from error


def read_file(path: Path) -> bytes:
    """Return the content of a file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}", "storage") from error


def make_folder(path: Path) -> None:
    """Make a folder that only its owner can enter. It must not exist."""
    try:
        path.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise StorageError(f"the folder {path} cannot be made: {error.strerror}", "storage") from error


def sync_folder(path: Path) -> None:
    """Make renamed files of a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(folder: Path, *, wait: bool) -> Iterator[None]:
    """Keep other processes out of a folder, which two would use for the same secrets."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StorageError(f"the folder {folder} cannot be used: {error.strerror}", "storage") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise StorageError(f"another process uses the folder {folder}", "storage") from None
        yield
    finally:
        os.close(descriptor)
