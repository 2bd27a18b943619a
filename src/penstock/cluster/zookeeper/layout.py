"""The nodes around the records, as Kafka 3.9 has them: parents, their ACLs, and notifications."""

from collections.abc import Iterator, Sequence
from typing import Final

from penstock.cluster.paths import path_of
from penstock.cluster.store import Scope
from penstock.cluster.znode_json import AclChangeJson, ConfigChangeJson, encode_json
from penstock.cluster.zookeeper.requests import OPEN_ACL, Acl
from penstock.controller.metadata import (
    AclKey,
    Change,
    ConfigKey,
    DelegationTokenKey,
    Delete,
    Key,
    Put,
    TopicKey,
    TopicRecord,
)
from penstock.core.ids import TopicPartition

PERSISTENT_PATHS: Final = (
    "/consumers",
    "/brokers/ids",
    "/brokers/topics",
    "/config/changes",
    "/admin/delete_topics",
    "/brokers/seqid",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)
"""Nodes that exist once a broker has started, in the order in which Kafka creates them."""

CONFIG_CHANGES: Final = "/config/changes"
ACL_CHANGES: Final = "/kafka-acl-changes"
EXTENDED_ACL_CHANGES: Final = "/kafka-acl-extended-changes"
TOKEN_CHANGES: Final = "/delegation_token/token_changes"
NOTIFICATION_PARENTS: Final = (CONFIG_CHANGES, ACL_CHANGES, EXTENDED_ACL_CHANGES, TOKEN_CHANGES)

_CREATOR_ACL: Final = (Acl(31, "auth", ""),)
_CREATOR_AND_READERS_ACL: Final = (*_CREATOR_ACL, Acl(1, "world", "anyone"))
_SENSITIVE_PATHS: Final = (
    "/config/users",
    "/config/brokers",
    "/delegation_token/tokens",
    "/penstock",
)


_SETTINGS_ROOTS: Final = (
    "/cluster",
    "/penstock",
    "/controller",
    "/controller_epoch",
    "/feature",
    "/latest_producer_id_block",
    "/config",
    "/kafka-acl",
    "/kafka-acl-extended",
    "/delegation_token",
)
_CONTROLLER_ROOTS: Final = (
    "/brokers",
    "/admin",
    "/isr_change_notification",
    "/log_dir_event_notification",
)


def watched_paths(scope: Scope | None) -> tuple[str, ...]:
    """Returns the subtrees that contain all records of a scope. Some may not exist yet."""
    if scope is None:
        return ()
    return _SETTINGS_ROOTS if scope is Scope.SETTINGS else (*_SETTINGS_ROOTS, *_CONTROLLER_ROOTS)


def acls_of(path: str, is_secure: bool) -> Sequence[Acl]:
    """Returns the ACLs of a new node: with `zookeeper.set.acl`, only its creator may change it.

    Nodes with credentials cannot be read by others either. Old consumers write to `/consumers`.
    """
    if not is_secure or path == "/consumers":
        return OPEN_ACL
    return _CREATOR_ACL if path.startswith(_SENSITIVE_PATHS) else _CREATOR_AND_READERS_ACL


def parents_of(path: str) -> list[str]:
    """Returns the nodes above this one, the highest first, without the root."""
    names = path.split("/")
    return ["/".join(names[:end]) for end in range(2, len(names))]


def is_always_there(path: str) -> bool:
    """Whether the node exists since the first start of a broker."""
    return path in _ALWAYS_THERE


_ALWAYS_THERE: Final = frozenset(
    node for path in PERSISTENT_PATHS for node in (*parents_of(path), path)
)


def owned_parents(key: Key) -> list[str]:
    """Returns the empty nodes that are deleted with a record's node, in that order.

    They are those of a topic's partitions: `/brokers/topics/t/partitions` goes before the topic,
    `…/partitions/0` after its `state`.
    """
    match key:
        case TopicPartition():
            return [path_of(key).removesuffix("/state")]
        case TopicKey():
            return [f"{path_of(key)}/partitions"]
    return []


def is_notified(key: Key) -> bool:
    """Whether changes of this record's node are announced by a notification."""
    return isinstance(key, ConfigKey | AclKey | DelegationTokenKey)


def notifications(changes: Sequence[Change]) -> Iterator[tuple[str, bytes]]:
    """Yields prefix and content of the nodes that tell Kafka's brokers of such changes.

    Topics that are created or deleted in the same commit need none: brokers read their settings
    when they create the replica.
    """
    new_or_removed = {
        change.record.topic
        for change in changes
        if isinstance(change, Put) and isinstance(change.record, TopicRecord)
    } | {
        change.key.topic
        for change in changes
        if isinstance(change, Delete) and isinstance(change.key, TopicKey)
    }
    for change in changes:
        match change.record.key if isinstance(change, Put) else change.key:
            case ConfigKey(entity=(("topics", topic),)) if topic in new_or_removed:
                continue
            case ConfigKey() as key:
                entity_path = path_of(key).removeprefix("/config/")
                yield (
                    f"{CONFIG_CHANGES}/config_change_",
                    encode_json(ConfigChangeJson(entity_path=entity_path)),
                )
            case AclKey(resource_type, "LITERAL", name):
                yield f"{ACL_CHANGES}/acl_changes_", f"{resource_type}:{name}".encode()
            case AclKey(resource_type, pattern_type, name):
                event = AclChangeJson(
                    resource_type=resource_type, name=name, pattern_type=pattern_type
                )
                yield f"{EXTENDED_ACL_CHANGES}/acl_changes_", encode_json(event)
            case DelegationTokenKey(token_id):
                yield f"{TOKEN_CHANGES}/token_change_", token_id.encode()
