"""Access rules come and go (X3)."""

from collections.abc import Iterable

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    AccessControlEntry,
    AclKey,
    AclRecord,
    Change,
    Delete,
    Put,
)

Binding = tuple[AclKey, AccessControlEntry]


def create_acls(image: ClusterImage, bindings: Iterable[Binding]) -> list[Change]:
    """Those that are there already make no change."""
    after: dict[AclKey, set[AccessControlEntry]] = {}
    for key, entry in bindings:
        after.setdefault(key, set(_entries(image, key))).add(entry)
    return _changes(image, after)


def delete_acls(image: ClusterImage, bindings: Iterable[Binding]) -> list[Change]:
    """Those that are not there make no change."""
    after: dict[AclKey, set[AccessControlEntry]] = {}
    for key, entry in bindings:
        after.setdefault(key, set(_entries(image, key))).discard(entry)
    return _changes(image, after)


def _entries(image: ClusterImage, key: AclKey) -> frozenset[AccessControlEntry]:
    record = image.acls.get(key)
    return frozenset() if record is None else record.entries


def _changes(image: ClusterImage, after: dict[AclKey, set[AccessControlEntry]]) -> list[Change]:
    changes: list[Change] = []
    for key, entries in after.items():
        if entries == _entries(image, key):
            continue
        if entries:
            record = AclRecord(key.resource_type, key.pattern_type, key.name, frozenset(entries))
            changes.append(Put(record))
        else:
            changes.append(Delete(key))
    return changes
