"""The requests to brokers that accompany a move of partitions: log directories and throttles."""

import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from penstock.cli.admin.json_files import ANY_DIR, Move
from penstock.cli.admin.reassignment import Throttles
from penstock.cli.session import Session
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin import ConfigOp, ConfigResource, TopicPartitionReplica
    from penstock.client.admin.admin import Admin

_POLL_S: Final = 0.5
BROKER_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LOG_DIR_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
TOPIC_LISTS: Final = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)


def log_dir_moves(moves: Mapping[TopicPartition, Move]) -> "dict[TopicPartitionReplica, str]":
    """Returns the log directories that a plan names."""
    from penstock.client.admin import TopicPartitionReplica

    return {
        TopicPartitionReplica(partition.topic, partition.partition, broker): path
        for partition, move in moves.items()
        for broker, path in zip(move.replicas, move.log_dirs, strict=True)
        if path != ANY_DIR
    }


def set_log_dirs(
    admin: "Admin",
    directories: "Mapping[TopicPartitionReplica, str]",
    before: Mapping[TopicPartition, tuple[int, ...]],
    *,
    is_new: bool,
) -> None:
    """Sends brokers the directories of their replicas: of new ones, or of those that they have."""
    from penstock.client.admin import AdminError

    some = {
        directory: path
        for directory, path in directories.items()
        if (directory.broker_id not in before[TopicPartition(directory.topic, directory.partition)])
        == is_new
    }
    if not some:
        return
    try:
        admin.alter_replica_log_dirs(some)
    except AdminError as error:
        # For a replica that it does not have yet, a broker remembers the directory and responds so.
        codes = {replica_error.code for replica_error in error.errors.values()}
        if not is_new or codes != {ErrorCode.REPLICA_NOT_AVAILABLE}:
            raise


def log_dir_states(
    admin: "Admin", directories: "Mapping[TopicPartitionReplica, str]"
) -> "list[tuple[TopicPartitionReplica, str, str]]":
    """Returns the state of each replica: `complete`, `in progress` or `different`."""
    if not directories:
        return []
    dirs = admin.describe_replica_log_dirs(directories)
    states = []
    for directory, path in sorted(directories.items()):
        log_dir = dirs[directory]
        if log_dir.future == path:
            state = "in progress"
        else:
            state = "complete" if log_dir.current == path else "different"
        states.append((directory, path, state))
    return states


def throttle_changes(
    throttles: Throttles,
    rate: int | None,
    directories: "Collection[TopicPartitionReplica]",
    log_dir_rate: int | None,
) -> "dict[ConfigResource, list[ConfigOp]]":
    """Returns the settings that limit a move to a rate in bytes per second; None is no limit."""
    from penstock.client.admin import ConfigOp, ConfigResource, ConfigResourceType

    changes: dict[ConfigResource, list[ConfigOp]] = {}
    if rate is not None:
        for topic in throttles.leaders:
            changes[ConfigResource(ConfigResourceType.TOPIC, topic)] = [
                ConfigOp(TOPIC_LISTS[0], throttles.leaders[topic]),
                ConfigOp(TOPIC_LISTS[1], throttles.followers[topic]),
            ]
        for broker in throttles.brokers:
            changes[ConfigResource(ConfigResourceType.BROKER, str(broker))] = [
                ConfigOp(name, str(rate)) for name in BROKER_RATES
            ]
    if log_dir_rate is not None:
        for broker in sorted({directory.broker_id for directory in directories}):
            resource = ConfigResource(ConfigResourceType.BROKER, str(broker))
            changes.setdefault(resource, []).append(ConfigOp(LOG_DIR_RATE, str(log_dir_rate)))
    return changes


def remove_throttles(admin: "Admin", topics: Collection[str]) -> None:
    """Removes the throttles of the topics and of all brokers that are up.

    Which brokers took part is not known any more.
    """
    from penstock.client.admin import ConfigOp, ConfigOpType, ConfigResource, ConfigResourceType

    settings: dict[ConfigResource, tuple[str, ...]] = {
        ConfigResource(ConfigResourceType.TOPIC, topic): TOPIC_LISTS for topic in sorted(topics)
    }
    for node in admin.describe_cluster().nodes:
        resource = ConfigResource(ConfigResourceType.BROKER, str(node.id))
        settings[resource] = (*BROKER_RATES, LOG_DIR_RATE)
    configs = admin.describe_configs(settings)
    changes = {
        resource: [
            ConfigOp(name, None, ConfigOpType.DELETE)
            for name in names
            if name in configs[resource] and configs[resource][name].is_dynamic
        ]
        for resource, names in settings.items()
    }
    if any(changes.values()):
        admin.incremental_alter_configs({change: ops for change, ops in changes.items() if ops})


def wait_for_moves(session: Session, admin: "Admin", partitions: list[TopicPartition]) -> None:
    """Waits until none of the partitions is being moved; shows the progress."""
    with session.out.progress("moving", len(partitions)) as step:
        remaining = len(partitions)
        while partitions:
            partitions = list(admin.list_partition_reassignments(partitions))
            step(remaining - len(partitions))
            remaining = len(partitions)
            if partitions:
                time.sleep(_POLL_S)


def cancel_moves(admin: "Admin", partitions: Collection[TopicPartition]) -> None:
    """Stops moves that are in progress, and removes their throttles."""
    admin.alter_partition_reassignments(dict.fromkeys(partitions))
    remove_throttles(admin, {partition.topic for partition in partitions})
