"""The key generator of a Flower task: its files, and a process that only opens sums.

A SuperNode runs code that the server ships, so a key generator on a node should be a process of another user of the
operating system: ``python -m dphe.flower key-generator FOLDER SOCKET``. The node then names the socket in its
configuration, and the code on it can ask for sums as any server can, but cannot read the key.
"""

from __future__ import annotations

import hashlib
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, Protocol

from dphe import errors
from dphe.errors import DpheError, InvalidValue, Refused, StorageError
from dphe.flower.files import locked, make_folder, read_file, write_file
from dphe.flower.kits import CHANNELS, Channel, Settings, join_parts, read_settings, split_parts
from dphe.paillier import DecryptionKey
from dphe.roles import KeyGenerator

_STATE = b"DPHEFLG1"
_SEALED, _UNPROTECTED = b"sealed\n", b"unprotected\n"
_REQUEST = struct.Struct("<8sB32sQ")
_MAGIC = b"DPHEFLR1"
_REPLY = struct.Struct("<BQ")


class SumOpener(Protocol):
    """Opens sealed sums: a key generator, or a connection to one."""

    def open(self, channel: Channel, sealed_sum: bytes, context: bytes) -> bytes:
        """Open the sum of a round, once."""
        ...


class FileKeyGenerator:
    """The key generator in a folder that :func:`~dphe.flower.create_task` made.

    Before a result leaves :meth:`open`, the seeds of later rounds and the result are on the disk. After a crash, the
    same sum gives the same result, and no other sum of the round is opened. **Never restore an older copy of the
    folder.**
    """

    def __init__(self, folder: str | Path, passphrase: bytes | bytearray | None = None) -> None:
        """Read the settings and the key. A passphrase in a ``bytearray`` is wiped."""
        self._folder = Path(folder)
        self._settings = read_settings(self._folder)
        self._key = _read_key(self._folder / "key", passphrase)

    @property
    def settings(self) -> Settings:
        """What is public about the task."""
        return self._settings

    def open(self, channel: Channel, sealed_sum: bytes, context: bytes) -> bytes:
        """Open the sum of a round, once."""
        if channel not in CHANNELS:
            raise InvalidValue(f"there is no channel {channel!r}", "encoding")
        path = self._folder / f"{channel}.state"
        request = hashlib.sha256(bytes(context) + bytes(sealed_sum)).digest()
        with locked(self._folder, wait=True):
            seeds, last, answer = split_parts(_STATE, read_file(path), 3, str(path))
            if last == request:
                return answer
            generator = KeyGenerator.from_unprotected_bytes(seeds, self._key)
            before = generator.next_round
            try:
                opened = generator.open(sealed_sum, context=context)
            except DpheError:
                # A sum that failed counts as opened, too.
                if generator.next_round != before:
                    write_file(path, join_parts(_STATE, [generator.to_unprotected_bytes(), b"", b""]))
                raise
            write_file(path, join_parts(_STATE, [generator.to_unprotected_bytes(), request, opened]))
        return opened

    def __repr__(self) -> str:
        """Name the task."""
        return f"FileKeyGenerator(task={self._settings.train.id[:16]})"

    def __reduce__(self) -> NoReturn:
        """Refuse: the key is secret."""
        raise TypeError("a FileKeyGenerator holds secrets and cannot be pickled or copied")


class SocketKeyGenerator:
    """A connection to :func:`serve_key_generator` on this machine."""

    def __init__(self, path: str | Path, *, timeout: float = 3600.0) -> None:
        """Name the socket. It is opened for each sum."""
        self._path, self._timeout = str(path), timeout

    def open(self, channel: Channel, sealed_sum: bytes, context: bytes) -> bytes:
        """Open the sum of a round, once."""
        request = _REQUEST.pack(_MAGIC, CHANNELS.index(channel), context, len(sealed_sum))
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(self._timeout)
                connection.connect(self._path)
                connection.sendall(request)
                connection.sendall(sealed_sum)
                status, length = _REPLY.unpack(_receive(connection, _REPLY.size))
                body = _receive(connection, min(length, 1 << 40))
        except OSError as error:
            raise StorageError(
                f"the key generator at {self._path} does not answer: {error}", "storage"
            ) from error
        if status == 0:
            return body
        kind, code, message = [*body.decode(errors="replace").split("\n", 2), "", ""][:3]
        raise _exception(kind, message, code)


def serve_key_generator(
    folder: str | Path,
    path: str | Path,
    *,
    passphrase: bytes | bytearray | None = None,
    requests: int | None = None,
) -> None:
    """Answer requests on a Unix socket, one at a time, until the process ends or after this number of requests.

    The permissions of the folder that holds the socket say who may ask.
    """
    generator = FileKeyGenerator(folder, passphrase)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        _bind(listener, Path(path))
        listener.listen()
        while requests is None or requests > 0:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(60.0)
                with suppress(OSError):  # the other end went away; it may ask again
                    _answer(generator, connection)
            requests = None if requests is None else requests - 1


def write_key_generator(
    folder: Path,
    settings: Settings,
    generators: dict[Channel, KeyGenerator],
    key_file: bytes,
) -> None:
    """Write the files of a new key generator. ``key_file`` is what :func:`key_file_of` returned."""
    make_folder(folder)
    for channel, generator in generators.items():
        state = join_parts(_STATE, [generator.to_unprotected_bytes(), b"", b""])
        write_file(folder / f"{channel}.state", state)
    write_file(folder / "key", key_file)
    write_file(folder / "settings.json", settings.to_bytes())


def key_file_of(key: DecryptionKey, passphrase: bytes | bytearray | None) -> bytes:
    """Return the content of the key's file, sealed if there is a passphrase."""
    return _UNPROTECTED + key.to_unprotected_bytes() if passphrase is None else _SEALED + key.seal(passphrase)


def _read_key(path: Path, passphrase: bytes | bytearray | None) -> DecryptionKey:
    data = read_file(path)
    if data.startswith(_UNPROTECTED):
        return DecryptionKey.from_unprotected_bytes(data[len(_UNPROTECTED) :])
    if not data.startswith(_SEALED):
        raise StorageError(f"{path} is not a key file, or is damaged", "storage")
    if passphrase is None:
        raise Refused(f"{path} is sealed; give its passphrase", "passphrase")
    return DecryptionKey.open(data[len(_SEALED) :], passphrase)


def _bind(listener: socket.socket, path: Path) -> None:
    try:
        if path.is_socket():
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                if probe.connect_ex(str(path)) == 0:
                    raise StorageError(f"another process listens on {path}", "storage")
            path.unlink()
        listener.bind(str(path))
        os.chmod(path, 0o660)
    except OSError as error:
        if isinstance(error, DpheError):
            raise
        raise StorageError(f"the socket {path} cannot be opened: {error}", "storage") from error


def _answer(generator: FileKeyGenerator, connection: socket.socket) -> None:
    magic, number, context, length = _REQUEST.unpack(_receive(connection, _REQUEST.size))
    try:
        if magic != _MAGIC or number >= len(CHANNELS):
            raise InvalidValue("the request is not one of this version", "version")
        channel = CHANNELS[number]
        if length > generator.settings.max_sum_bytes(channel):
            raise InvalidValue("the sum is too long", "size")
        status, body = 0, generator.open(channel, _receive(connection, length), context)
    except DpheError as error:
        status, body = 1, f"{type(error).__name__}\n{error.code}\n{error}".encode()
    connection.sendall(_REPLY.pack(status, len(body)))
    connection.sendall(body)


def _receive(connection: socket.socket, length: int) -> bytes:
    parts = []
    while length > 0:
        part = connection.recv(min(length, 1 << 20))
        if not part:
            raise OSError("the connection was closed")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _exception(kind: str, message: str, code: str) -> DpheError:
    """Return the exception that another process named."""
    found: Any = getattr(errors, kind, None) if kind in errors.__all__ else None
    if not (isinstance(found, type) and issubclass(found, DpheError)):
        found = DpheError
    exception: DpheError = found(message, code)
    return exception
