"""ZooKeeper's requests that the store sends, in its wire format (jute).

kazoo has no persistent watches and no reads of several nodes in one request, so these requests are
defined here. kazoo sends them like its own: it needs `type`, `serialize` and `deserialize` only.
Paths are complete; the chroot is part of them.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

_HEADER: Final = struct.Struct("!iBi")
_INT: Final = struct.Struct("!i")
_STAT: Final = struct.Struct("!qqqqiiiqiiq")
_END: Final = _HEADER.pack(-1, 1, -1)

NO_NODE: Final = -101
NO_AUTH: Final = -102
BAD_VERSION: Final = -103
NODE_EXISTS: Final = -110
NOT_EMPTY: Final = -111

EPHEMERAL: Final = 1
SEQUENTIAL: Final = 2

_CREATE: Final = 1
_DELETE: Final = 2
_GET_DATA: Final = 4
_SET_DATA: Final = 5
_GET_CHILDREN: Final = 8
_CHECK: Final = 13
_ERROR: Final = -1


class Acl(NamedTuple):
    """Permissions for a node: `perms` is a bit mask, 31 for everything and 1 for reading."""

    perms: int
    scheme: str
    id: str


OPEN_ACL: Final = (Acl(31, "world", "anyone"),)


class Stat(NamedTuple):
    """The facts about a node."""

    czxid: int
    """The transaction that created it."""
    mzxid: int
    """The transaction that changed its content last."""
    ctime_ms: int
    mtime_ms: int
    version: int
    child_version: int
    acl_version: int
    ephemeral_owner: int
    """The session of an ephemeral node, else 0."""
    data_length: int
    children: int
    pzxid: int


def new_stat(zxid: int, owner: int) -> Stat:
    """Returns the `Stat` of a node that the transaction `zxid` created."""
    return Stat(zxid, zxid, 0, 0, 0, 0, 0, owner, 0, 0, zxid)


class Node(NamedTuple):
    """A node's content as it was read."""

    data: bytes
    stat: Stat


@dataclass(frozen=True)
class AddWatch:
    """Adds a persistent recursive watch: events of the whole subtree until the connection ends."""

    path: str
    type: ClassVar[int] = 106

    def serialize(self) -> bytes:
        recursive = 1
        return _string(self.path) + _INT.pack(recursive)

    def deserialize(self, data: bytes, offset: int) -> None:
        """Ignores the body, which contains nothing."""


@dataclass(frozen=True)
class RemoveWatches:
    """Removes the watches of this connection on a node."""

    path: str
    type: ClassVar[int] = 18

    def serialize(self) -> bytes:
        any_type = 3
        return _string(self.path) + _INT.pack(any_type)

    def deserialize(self, data: bytes, offset: int) -> None:
        """Ignores the body, which contains nothing."""


@dataclass(frozen=True)
class Sync:
    """Waits until the server has every transaction that the ensemble has committed so far."""

    path: str
    type: ClassVar[int] = 9

    def serialize(self) -> bytes:
        return _string(self.path)

    def deserialize(self, data: bytes, offset: int) -> None:
        """Ignores the body, which repeats the path."""


@dataclass(frozen=True)
class AddAuth:
    """Logs a connection in with one of ZooKeeper's schemes; its repr has no password."""

    scheme: str
    credentials: str = field(repr=False)
    type: ClassVar[int] = 100

    def serialize(self) -> bytes:
        return _INT.pack(0) + _string(self.scheme) + _string(self.credentials)


@dataclass(frozen=True)
class SetAcls:
    """Replaces the ACLs of a node."""

    path: str
    acls: Sequence[Acl]
    type: ClassVar[int] = 7

    def serialize(self) -> bytes:
        any_version = -1
        return _string(self.path) + _acls(self.acls) + _INT.pack(any_version)

    def deserialize(self, data: bytes, offset: int) -> None:
        """Ignores the body, which has the facts about the node."""


# --- reads


@dataclass(frozen=True)
class ReadNodes:
    """Reads the content of several nodes; the response has None for those that do not exist."""

    paths: Sequence[str]
    type: ClassVar[int] = 22

    def serialize(self) -> bytes:
        return _read_requests(_GET_DATA, self.paths)

    def deserialize(self, data: bytes, offset: int) -> list[Node | None]:
        nodes: list[Node | None] = []
        for _ in self.paths:
            error, offset = _read_header(data, offset)
            if error:
                _check_is_missing(error)
                nodes.append(None)
            else:
                content, offset = _read_buffer(data, offset)
                stat, offset = _read_stat(data, offset)
                nodes.append(Node(content, stat))
        return nodes


@dataclass(frozen=True)
class ReadChildren:
    """Lists the children of several nodes; the response has none for those that do not exist."""

    paths: Sequence[str]
    type: ClassVar[int] = 22

    def serialize(self) -> bytes:
        return _read_requests(_GET_CHILDREN, self.paths)

    def deserialize(self, data: bytes, offset: int) -> list[list[str]]:
        children: list[list[str]] = []
        for _ in self.paths:
            names: list[str] = []
            error, offset = _read_header(data, offset)
            if error:
                _check_is_missing(error)
            else:
                (count,) = _INT.unpack_from(data, offset)
                offset += _INT.size
                for _ in range(count):
                    name, offset = _read_buffer(data, offset)
                    names.append(name.decode())
            children.append(names)
        return children


# --- changes


class Create(NamedTuple):
    path: str
    data: bytes
    flags: int = 0
    acls: Sequence[Acl] = OPEN_ACL

    def serialize(self) -> bytes:
        return b"".join(
            (
                _HEADER.pack(_CREATE, 0, -1),
                _string(self.path),
                _buffer(self.data),
                _acls(self.acls),
                _INT.pack(self.flags),
            )
        )


class SetData(NamedTuple):
    path: str
    data: bytes
    version: int

    def serialize(self) -> bytes:
        return b"".join(
            (
                _HEADER.pack(_SET_DATA, 0, -1),
                _string(self.path),
                _buffer(self.data),
                _INT.pack(self.version),
            )
        )


class DeleteNode(NamedTuple):
    path: str
    version: int = -1

    def serialize(self) -> bytes:
        return _HEADER.pack(_DELETE, 0, -1) + _string(self.path) + _INT.pack(self.version)


class CheckVersion(NamedTuple):
    path: str
    version: int

    def serialize(self) -> bytes:
        return _HEADER.pack(_CHECK, 0, -1) + _string(self.path) + _INT.pack(self.version)


Operation = Create | SetData | DeleteNode | CheckVersion


class MultiError(NamedTuple):
    """The operation that failed, by its number, and ZooKeeper's error code."""

    position: int
    code: int


OperationResult = str | Stat | None
"""The path of a node that was created, the facts about one that was changed, None for others."""


MultiResponse = list[OperationResult] | MultiError


@dataclass(frozen=True)
class Multi:
    """Does all operations, or none. The response is one result each, or the error."""

    operations: Sequence[bytes]
    """Serialized."""
    type: ClassVar[int] = 14

    def serialize(self) -> bytes:
        return b"".join((*self.operations, _END))

    def deserialize(self, data: bytes, offset: int) -> tuple[MultiResponse]:
        # kazoo copies a sequence that is the response to this type of request: this is its element.
        return (self._response(data, offset),)

    def _response(self, data: bytes, offset: int) -> MultiResponse:
        results: list[OperationResult] = []
        index = 0
        while True:
            kind, is_done, _ = _HEADER.unpack_from(data, offset)
            offset += _HEADER.size
            if is_done:
                return results
            result: OperationResult = None
            if kind == _ERROR:
                (code,) = _INT.unpack_from(data, offset)
                offset += _INT.size
                # Operations before the failed one have code 0, those after it -2.
                if code not in (0, -2):
                    return MultiError(index, code)
            elif kind == _CREATE:
                path, offset = _read_buffer(data, offset)
                result = path.decode()
            elif kind == _SET_DATA:
                result, offset = _read_stat(data, offset)
            results.append(result)
            index += 1


# --- jute


def _string(text: str) -> bytes:
    return _buffer(text.encode())


def _buffer(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _acls(acls: Sequence[Acl]) -> bytes:
    entries = (_INT.pack(acl.perms) + _string(acl.scheme) + _string(acl.id) for acl in acls)
    return _INT.pack(len(acls)) + b"".join(entries)


def _read_requests(kind: int, paths: Sequence[str]) -> bytes:
    header = _HEADER.pack(kind, 0, -1)
    return b"".join((*(header + _string(path) + b"\0" for path in paths), _END))


def _read_header(data: bytes, offset: int) -> tuple[int, int]:
    """Returns the error code of one result, 0 if it has none, and the offset behind it."""
    kind, _, _ = _HEADER.unpack_from(data, offset)
    offset += _HEADER.size
    if kind != _ERROR:
        return 0, offset
    (code,) = _INT.unpack_from(data, offset)
    return code, offset + _INT.size


def _check_is_missing(code: int) -> None:
    """Raises PermissionError for a node that may not be read, which is no missing node."""
    if code != NO_NODE:
        raise PermissionError(f"ZooKeeper refuses to read a node (error {code})")


def _read_buffer(data: bytes, offset: int) -> tuple[bytes, int]:
    (length,) = _INT.unpack_from(data, offset)
    offset += _INT.size
    if length < 0:
        return b"", offset
    return data[offset : offset + length], offset + length


def _read_stat(data: bytes, offset: int) -> tuple[Stat, int]:
    return Stat(*_STAT.unpack_from(data, offset)), offset + _STAT.size
