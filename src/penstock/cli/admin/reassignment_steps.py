"""What a move of partitions asks of brokers besides the move: folders and throttles."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from penstock.cli.admin.json_files import ANY_DIR, Move
from penstock.cli.admin.reassignment import Throttles
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin import ConfigOp, ConfigResource, TopicPartitionReplica
    from penstock.client.admin.admin import Admin

BROKER_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
FOLDER_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
TOPIC_LISTS: Final = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)


def folder_moves(moves: Mapping[TopicPartition, Move]) -> "dict[TopicPartitionReplica, str]":
    """The folders that a plan names."""
    from penstock.client.admin import TopicPartitionReplica

    return {
        TopicPartitionReplica(item.topic, item.partition, broker): path
        for item, move in moves.items()
        for broker, path in zip(move.replicas, move.log_dirs, strict=True)
        if path != ANY_DIR
    }


def ask_for_folders(
    admin: "Admin",
    directories: "Mapping[TopicPartitionReplica, str]",
    before: Mapping[TopicPartition, tuple[int, ...]],
    *,
    coming: bool,
) -> None:
    """Tell brokers the folders of copies: of those that they will get, or that they have."""
    from penstock.client.admin import AdminError

    some = {
        directory: path
        for directory, path in directories.items()
        if (directory.broker_id not in before[TopicPartition(directory.topic, directory.partition)])
        == coming
    }
    if not some:
        return
    try:
        admin.alter_replica_log_dirs(some)
    except AdminError as error:
        # A broker notes the folder of a copy that it does not have yet, and says so.
        codes = {item.code for item in error.errors.values()}
        if not coming or codes != {ErrorCode.REPLICA_NOT_AVAILABLE}:
            raise


def folder_states(
    admin: "Admin", directories: "Mapping[TopicPartitionReplica, str]"
) -> "list[tuple[TopicPartitionReplica, str, str]]":
    """How far each copy is on its way: `complete`, `in progress` or `different`."""
    if not directories:
        return []
    dirs = admin.describe_replica_log_dirs(directories)
    states = []
    for directory, path in sorted(directories.items()):
        where = dirs[directory]
        if where.future == path:
            state = "in progress"
        else:
            state = "complete" if where.current == path else "different"
        states.append((directory, path, state))
    return states


def throttle_changes(
    who: Throttles,
    rate: int | None,
    directories: "Collection[TopicPartitionReplica]",
    folder_rate: int | None,
) -> "dict[ConfigResource, list[ConfigOp]]":
    """The settings that slow a move down to so many bytes a second; None is not at all."""
    from penstock.client.admin import ConfigOp, ConfigResource, ConfigResourceType

    changes: dict[ConfigResource, list[ConfigOp]] = {}
    if rate is not None:
        for topic in who.leaders:
            changes[ConfigResource(ConfigResourceType.TOPIC, topic)] = [
                ConfigOp(TOPIC_LISTS[0], who.leaders[topic]),
                ConfigOp(TOPIC_LISTS[1], who.followers[topic]),
            ]
        for broker in who.brokers:
            changes[ConfigResource(ConfigResourceType.BROKER, str(broker))] = [
                ConfigOp(name, str(rate)) for name in BROKER_RATES
            ]
    if folder_rate is not None:
        for broker in sorted({directory.broker_id for directory in directories}):
            resource = ConfigResource(ConfigResourceType.BROKER, str(broker))
            changes.setdefault(resource, []).append(ConfigOp(FOLDER_RATE, str(folder_rate)))
    return changes


def take_throttles_away(admin: "Admin", topics: Collection[str]) -> None:
    """Of the topics and of all brokers that are up: which ones took part is not known any more."""
    from penstock.client.admin import ConfigOp, ConfigOpType, ConfigResource, ConfigResourceType

    wanted: dict[ConfigResource, tuple[str, ...]] = {
        ConfigResource(ConfigResourceType.TOPIC, topic): TOPIC_LISTS for topic in sorted(topics)
    }
    for node in admin.describe_cluster().nodes:
        resource = ConfigResource(ConfigResourceType.BROKER, str(node.id))
        wanted[resource] = (*BROKER_RATES, FOLDER_RATE)
    configs = admin.describe_configs(wanted)
    changes = {
        resource: [
            ConfigOp(name, None, ConfigOpType.DELETE)
            for name in names
            if name in configs[resource] and configs[resource][name].is_dynamic
        ]
        for resource, names in wanted.items()
    }
    if any(changes.values()):
        admin.incremental_alter_configs({change: ops for change, ops in changes.items() if ops})
