"""Which node of the metadata tree holds which record: Kafka's own paths in ZooKeeper."""

from typing import Final
from urllib.parse import quote, unquote

from penstock.controller.metadata import (
    DEFAULT_ENTITY,
    AclKey,
    BrokerKey,
    ClusterKey,
    ConfigKey,
    Key,
    TopicKey,
)
from penstock.core.ids import TopicPartition


def pascal_case(name: str) -> str:
    """`TRANSACTIONAL_ID` as Kafka writes it in paths and ACLs: `TransactionalId`."""
    return "".join(word.capitalize() for word in name.split("_"))


_SINGLE_PATHS: Final = {
    "cluster_id": "/cluster/id",
    "controller": "/controller",
    "controller_epoch": "/controller_epoch",
    "features": "/feature",
    "producer_ids": "/latest_producer_id_block",
}
_SINGLE_NAMES: Final = {path: name for name, path in _SINGLE_PATHS.items()}

_ENTITY_KINDS: Final = frozenset(
    {"topics", "brokers", "clients", "users", "ips", "groups", "client-metrics"}
)

_TYPE_NODES: Final = {
    name: pascal_case(name)
    for name in ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
}
_RESOURCE_TYPES: Final = {node: name for name, node in _TYPE_NODES.items()}


def path_of(key: Key) -> str:
    """The path of the node; `ValueError` for a key that no record can have."""
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
        case ClusterKey(name) if name in _SINGLE_PATHS:
            return _SINGLE_PATHS[name]
    raise ValueError(f"{key} is no key of the metadata store")


def key_of(path: str) -> Key | None:
    """The key of the record at `path`, or None where no record lives: a parent, or not ours."""
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
    single = _SINGLE_NAMES.get(path)
    return None if single is None else ClusterKey(single)


def parent_record(key: Key) -> TopicKey | None:
    """The record without which the node of `key` can not be: the topic of a partition."""
    return TopicKey(key.topic) if isinstance(key, TopicPartition) else None


def _number(text: str) -> int | None:
    """A number as it is written in a path: no sign, no leading zero."""
    if not (text.isascii() and text.isdigit()) or (text[0] == "0" and text != "0"):
        return None
    return int(text)


def _sanitize(name: str) -> str:
    """Kafka's escapes of user names, client ids and addresses; the default entity stays."""
    return name if name == DEFAULT_ENTITY else quote(name, safe="").replace("~", "%7E")


def _config_path(key: ConfigKey) -> str:
    kinds = tuple(kind for kind, _ in key.entity)
    known = kinds == ("users", "clients") or (len(kinds) == 1 and kinds[0] in _ENTITY_KINDS)
    if not known or not all(name for _, name in key.entity):
        raise ValueError(f"{key} is no entity that can have settings")
    return "/config" + "".join(f"/{kind}/{_sanitize(name)}" for kind, name in key.entity)


def _config_key(path: str, *entity: tuple[str, str]) -> ConfigKey | None:
    """None unless `path` is exactly what `path_of` makes of the key.

    So no two nodes stand for the same entity; `%3Cdefault%3E`, say, is not ours.
    """
    key = ConfigKey(tuple((kind, unquote(name)) for kind, name in entity))
    try:
        return key if _config_path(key) == path else None
    except ValueError:
        return None


def _acl_path(key: AclKey) -> str:
    node = _TYPE_NODES.get(key.resource_type)
    if node is None or key.pattern_type not in ("LITERAL", "PREFIXED") or not key.name:
        raise ValueError(f"{key} is no resource pattern that can be stored")
    if key.pattern_type == "LITERAL":
        return f"/kafka-acl/{node}/{key.name}"
    return f"/kafka-acl-extended/prefixed/{node}/{key.name}"


def _acl_key(node: str, pattern_type: str, name: list[str]) -> AclKey | None:
    """Names are not escaped, so one with a slash makes a deeper path."""
    resource_type = _RESOURCE_TYPES.get(node)
    full_name = "/".join(name)
    if resource_type is None or not full_name:
        return None
    return AclKey(resource_type, pattern_type, full_name)
