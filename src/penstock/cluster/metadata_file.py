"""All metadata of a cluster in one JSON document: a backup that can be read and restored.

Its nodes have the paths and the content that they have in ZooKeeper (docs/formats.md).
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from penstock.cluster.paths import path_of
from penstock.cluster.znode_json import DamagedNodeError
from penstock.cluster.znodes import decode, encode
from penstock.controller.metadata import ClusterIdRecord, Record
from penstock.core.errors import KafkaStorageError

FORMAT: Final = "penstock-metadata"
VERSION: Final = 1
_NO_CONTENT: Final = b"null"


class MetadataBackup(NamedTuple):
    """The metadata of a cluster at one time."""

    cluster_id: str
    created_ms: int
    records: Sequence[Record]
    """Each topic before its partitions."""


class _Head(Struct):
    format: str
    version: int


class _Document(Struct):
    format: str
    version: int
    cluster_id: str
    created_ms: int
    nodes: dict[str, msgspec.Raw]


def encode_backup(records: Sequence[Record], created_ms: int) -> bytes:
    """Returns the document of records with a cluster id."""
    cluster_id = _cluster_id(records) or ""
    nodes = {path_of(record.key): msgspec.Raw(encode(record) or _NO_CONTENT) for record in records}
    document = _Document(FORMAT, VERSION, cluster_id, created_ms, nodes)
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def decode_backup(data: bytes, name: str) -> MetadataBackup:
    """Returns what a document has; `name` is the name of the file, for errors.

    Raises KafkaStorageError if it is damaged, of another format or of a later version.
    """
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.format != FORMAT:
            raise _unreadable(name, f"its format is {head.format!r}, not {FORMAT!r}")
        if head.version > VERSION:
            raise KafkaStorageError(
                f"{name} has version {head.version}, this release reads versions up to {VERSION}",
                remedy="use the release that wrote it, or a newer one",
            )
        document = msgspec.json.decode(data, type=_Document)
        records = [_record(path, bytes(content)) for path, content in document.nodes.items()]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unreadable(name, str(error)) from error
    except DamagedNodeError as error:
        raise _unreadable(name, error.message) from error
    present = [record for record in records if record is not None]
    if _cluster_id(present) != document.cluster_id:
        raise _unreadable(name, "its cluster id and that of /cluster/id differ")
    return MetadataBackup(document.cluster_id, document.created_ms, present)


def _record(path: str, content: bytes) -> Record | None:
    return decode(path, b"" if content == _NO_CONTENT else content, 0)


def _cluster_id(records: Iterable[Record]) -> str | None:
    ids = (record.cluster_id for record in records if isinstance(record, ClusterIdRecord))
    return next(ids, None)


def _unreadable(name: str, problem: str) -> KafkaStorageError:
    return KafkaStorageError(f"{name} is not a backup of metadata: {problem}")
