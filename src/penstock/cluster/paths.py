"""The path of each record's node in the metadata tree: Kafka's own paths in ZooKeeper."""

import re
from typing import Final
from urllib.parse import quote, unquote

from penstock.controller.metadata import (
    DEFAULT_ENTITY,
    UNASSIGNED_SEQUENCE,
    AclKey,
    BrokerKey,
    ClusterKey,
    ConfigKey,
    DelegationTokenKey,
    IsrChangeKey,
    Key,
    LogDirEventKey,
    TopicDeletionKey,
    TopicKey,
)
from penstock.core.ids import TopicPartition


def pascal_case(name: str) -> str:
    """Returns `TransactionalId` for `TRANSACTIONAL_ID`, as Kafka writes it in paths and ACLs."""
    return "".join(word.capitalize() for word in name.split("_"))


_SINGLE_PATHS: Final = {
    "cluster_id": "/cluster/id",
    "login_secret": "/penstock/login_secret",
    "controller": "/controller",
    "controller_epoch": "/controller_epoch",
    "features": "/feature",
    "producer_ids": "/latest_producer_id_block",
    "reassign_partitions": "/admin/reassign_partitions",
    "preferred_election": "/admin/preferred_replica_election",
}
_SINGLE_NAMES: Final = {path: name for name, path in _SINGLE_PATHS.items()}

_ISR_CHANGE: Final = "/isr_change_notification/isr_change_"
_LOG_DIR_EVENT: Final = "/log_dir_event_notification/log_dir_event_"

_ENTITY_KINDS: Final = frozenset(
    {"topics", "brokers", "clients", "users", "ips", "groups", "client-metrics"}
)

_TYPE_NODES: Final = {
    name: pascal_case(name)
    for name in ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
}
_RESOURCE_TYPES: Final = {node: name for name, node in _TYPE_NODES.items()}


def path_of(key: Key) -> str:
    """Returns the path of a key's node. Raises ValueError for a key that no record can have."""
    match key:
        case TopicPartition(topic, partition):
            return f"/brokers/topics/{topic}/partitions/{partition}/state"
        case TopicKey(topic):
            return f"/brokers/topics/{topic}"
        case BrokerKey(broker_id):
            return f"/brokers/ids/{broker_id}"
        case ConfigKey():
            return _config_path(key)
        case AclKey():
            return _acl_path(key)
        case DelegationTokenKey(token_id) if token_id and "/" not in token_id:
            return f"/delegation_token/tokens/{token_id}"
        case TopicDeletionKey(topic):
            return f"/admin/delete_topics/{topic}"
        case IsrChangeKey(sequence) if sequence >= 0:
            return f"{_ISR_CHANGE}{sequence:010}"
        case LogDirEventKey(sequence) if sequence >= 0:
            return f"{_LOG_DIR_EVENT}{sequence:010}"
        case ClusterKey(name) if name in _SINGLE_PATHS:
            return _SINGLE_PATHS[name]
    raise ValueError(f"{key} is not a key of the metadata store")


def key_of(path: str) -> Key | None:
    """Returns the key of the record at `path`; None for parent nodes and unknown paths."""
    match path.split("/"):
        case ["", "brokers", "topics", topic, "partitions", partition, "state"]:
            number = _number(partition)
            return None if number is None or not topic else TopicPartition(topic, number)
        case ["", "brokers", "topics", topic] if topic:
            return TopicKey(topic)
        case ["", "brokers", "ids", broker]:
            number = _number(broker)
            return None if number is None else BrokerKey(number)
        case ["", "config", kind, name]:
            return _config_key(path, (kind, name))
        case ["", "config", "users", user, "clients", client]:
            return _config_key(path, ("users", user), ("clients", client))
        case ["", "kafka-acl", node, *name]:
            return _acl_key(node, "LITERAL", name)
        case ["", "kafka-acl-extended", "prefixed", node, *name]:
            return _acl_key(node, "PREFIXED", name)
        case ["", "delegation_token", "tokens", token_id] if token_id:
            return DelegationTokenKey(token_id)
        case ["", "admin", "delete_topics", topic] if topic:
            return TopicDeletionKey(topic)
        case ["", "isr_change_notification", _] if (number := _sequence(path, _ISR_CHANGE)) >= 0:
            return IsrChangeKey(number)
        case ["", "log_dir_event_notification", _] if (
            number := _sequence(path, _LOG_DIR_EVENT)
        ) >= 0:
            return LogDirEventKey(number)
    single = _SINGLE_NAMES.get(path)
    return None if single is None else ClusterKey(single)


def parent_record(key: Key) -> TopicKey | None:
    """Returns the key of the record that must exist before `key`: the topic of a partition."""
    return TopicKey(key.topic) if isinstance(key, TopicPartition) else None


def sequence_prefix(key: Key) -> str | None:
    """Returns the path before the sequence number if the store is to assign one, else None."""
    match key:
        case IsrChangeKey(sequence) if sequence == UNASSIGNED_SEQUENCE:
            return _ISR_CHANGE
        case LogDirEventKey(sequence) if sequence == UNASSIGNED_SEQUENCE:
            return _LOG_DIR_EVENT
    return None


def _sequence(path: str, prefix: str) -> int:
    """Returns the number after the prefix, which ZooKeeper writes with ten digits; -1 if none."""
    digits = path.removeprefix(prefix)
    return int(digits) if re.fullmatch("[0-9]{10}", digits) else -1


def _number(text: str) -> int | None:
    """Returns the value of a number in a path; None if it has a sign or a leading zero."""
    if not (text.isascii() and text.isdigit()) or (text[0] == "0" and text != "0"):
        return None
    return int(text)


def sanitize(name: str) -> str:
    """Escapes user names, client ids, addresses and principals as Kafka does."""
    return quote(name, safe="").replace("~", "%7E")


def _entity_node(name: str) -> str:
    return name if name == DEFAULT_ENTITY else sanitize(name)


def _config_path(key: ConfigKey) -> str:
    kinds = tuple(kind for kind, _ in key.entity)
    is_known = kinds == ("users", "clients") or (len(kinds) == 1 and kinds[0] in _ENTITY_KINDS)
    if not is_known or not all(name for _, name in key.entity):
        raise ValueError(f"{key} is not an entity that can have settings")
    return "/config" + "".join(f"/{kind}/{_entity_node(name)}" for kind, name in key.entity)


def _config_key(path: str, *entity: tuple[str, str]) -> ConfigKey | None:
    """Returns the entity's key; None unless `path_of` returns exactly `path` for it.

    So no two nodes have the same entity: `%3Cdefault%3E`, for example, is rejected.
    """
    key = ConfigKey(tuple((kind, unquote(name)) for kind, name in entity))
    try:
        return key if _config_path(key) == path else None
    except ValueError:
        return None


def _acl_path(key: AclKey) -> str:
    node = _TYPE_NODES.get(key.resource_type)
    if node is None or key.pattern_type not in ("LITERAL", "PREFIXED") or not key.name:
        raise ValueError(f"{key} is not a resource pattern that can be stored")
    if key.pattern_type == "LITERAL":
        return f"/kafka-acl/{node}/{key.name}"
    return f"/kafka-acl-extended/prefixed/{node}/{key.name}"


def _acl_key(node: str, pattern_type: str, name: list[str]) -> AclKey | None:
    """Joins the rest of the path: names are not escaped, so one may contain slashes."""
    resource_type = _RESOURCE_TYPES.get(node)
    full_name = "/".join(name)
    if resource_type is None or not full_name:
        return None
    return AclKey(resource_type, pattern_type, full_name)
