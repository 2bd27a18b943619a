"""Creation and deletion of ACLs (X3)."""

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
    """Returns the changes that add these bindings; existing ones need none."""
    entries: dict[AclKey, set[AccessControlEntry]] = {}
    for key, entry in bindings:
        entries.setdefault(key, set(_entries(image, key))).add(entry)
    return _changes(image, entries)


def delete_acls(image: ClusterImage, bindings: Iterable[Binding]) -> list[Change]:
    """Returns the changes that remove these bindings; missing ones need none."""
    entries: dict[AclKey, set[AccessControlEntry]] = {}
    for key, entry in bindings:
        entries.setdefault(key, set(_entries(image, key))).discard(entry)
    return _changes(image, entries)


def _entries(image: ClusterImage, key: AclKey) -> frozenset[AccessControlEntry]:
    record = image.acls.get(key)
    return frozenset() if record is None else record.entries


def _changes(
    image: ClusterImage, entries_by_key: dict[AclKey, set[AccessControlEntry]]
) -> list[Change]:
    changes: list[Change] = []
    for key, entries in entries_by_key.items():
        if entries == _entries(image, key):
            continue
        if entries:
            record = AclRecord(key.resource_type, key.pattern_type, key.name, frozenset(entries))
            changes.append(Put(record))
        else:
            changes.append(Delete(key))
    return changes
