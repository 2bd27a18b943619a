"""Admin calls for the log directories of brokers and the replicas in them."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.client.admin.advice import broker_error, response_error
from penstock.client.admin.api_driver import AdminApiDriver, AdminCall, LookupStrategy, Results
from penstock.client.admin.api_lookup import broker_ids, find_brokers
from penstock.client.admin.model_cluster import LogDirDescription, ReplicaInfo, ReplicaLogDir
from penstock.client.admin.model_topics import TopicPartitionReplica
from penstock.client.admin.results import number_or_none
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from penstock.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)


async def describe_log_dirs(
    admin: AdminApiDriver,
    brokers: Iterable[int] | None = None,
    *,
    topics: Iterable[str] | None = None,
    timeout_ms: int | None = None,
) -> dict[int, dict[str, LogDirDescription]]:
    """Returns the log directories of brokers, by default all, with replicas of these topics."""
    call = AdminCall(admin, "describe_log_dirs", timeout_ms)
    cluster = await call.refresh_brokers()
    requested = sorted(cluster.nodes if brokers is None else set(brokers))
    names = None if topics is None else set(topics)

    async def send(node_id: int, ids: Sequence[int]) -> Results[int, dict[str, LogDirDescription]]:
        response = await call.request(
            node_id, DescribeLogDirsRequest(None), DescribeLogDirsResponse
        )
        code = response.error_code
        if code == ErrorCode.NONE and not response.results:
            # Before version 3 an empty response means this.
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if code != ErrorCode.NONE:
            return {node_id: broker_error(code, f"log dirs of broker {node_id}")}
        results = {result.log_dir: _description(result, names) for result in response.results}
        return {node_id: dict(sorted(results.items()))}

    return await call.request_each(requested, broker_ids(call), send)


async def describe_replica_log_dirs(
    admin: AdminApiDriver,
    replicas: Iterable[TopicPartitionReplica],
    *,
    timeout_ms: int | None = None,
) -> dict[TopicPartitionReplica, ReplicaLogDir]:
    """Returns the log directories of replicas, and those that they are moved to."""
    requested = list(dict.fromkeys(replicas))
    topics = {replica.topic for replica in requested}
    brokers = {replica.broker_id for replica in requested}
    if not requested:
        return {}
    log_dirs = await describe_log_dirs(admin, brokers, topics=topics, timeout_ms=timeout_ms)
    results: dict[TopicPartitionReplica, ReplicaLogDir] = {}
    for replica in requested:
        partition = TopicPartition(replica.topic, replica.partition)
        location = ReplicaLogDir(None, -1, None, -1)
        for path, log_dir in log_dirs[replica.broker_id].items():
            info = log_dir.replicas.get(partition)
            if info is None:
                continue
            if info.is_future:
                location = location._replace(future=path, future_offset_lag=info.offset_lag)
            else:
                location = location._replace(current=path, current_offset_lag=info.offset_lag)
        results[replica] = location
    return results


async def alter_replica_log_dirs(
    admin: AdminApiDriver,
    moves: Mapping[TopicPartitionReplica, str],
    *,
    timeout_ms: int | None = None,
) -> None:
    """Starts to move replicas to other log directories of their brokers.

    The moves continue after the call; `describe_replica_log_dirs` shows them. A replica that
    the broker does not have is REPLICA_NOT_AVAILABLE; it is created there when it is added.
    """
    call = AdminCall(admin, "alter_replica_log_dirs", timeout_ms)

    async def find(
        replicas: Sequence[TopicPartitionReplica],
    ) -> Results[TopicPartitionReplica, int]:
        node_ids = await find_brokers(call, {log_replica.broker_id for log_replica in replicas})
        return {replica: node_ids[replica.broker_id] for replica in replicas}

    async def send(
        node_id: int, replicas: Sequence[TopicPartitionReplica]
    ) -> Results[TopicPartitionReplica, None]:
        request = AlterReplicaLogDirsRequest(_group_by_log_dir(replicas, moves))
        response = await call.request(node_id, request, AlterReplicaLogDirsResponse)
        return {
            TopicPartitionReplica(
                topic.topic_name, partition.partition_index, node_id
            ): response_error(
                partition, f"{topic.topic_name}-{partition.partition_index} on broker {node_id}"
            )
            for topic in response.results
            for partition in topic.partitions
        }

    await call.request_each(moves, LookupStrategy(find, ()), send)


def _description(result: DescribeLogDirsResult, names: set[str] | None) -> LogDirDescription:
    replicas = {
        TopicPartition(topic.name, partition.partition_index): ReplicaInfo(
            partition.partition_size, partition.offset_lag, partition.is_future_key
        )
        for topic in result.topics
        for partition in topic.partitions
        if names is None or topic.name in names
    }
    return LogDirDescription(
        response_error(result, f"log directory {result.log_dir}"),
        dict(sorted(replicas.items())),
        number_or_none(result.total_bytes),
        number_or_none(result.usable_bytes),
        result.is_cordoned,
    )


def _group_by_log_dir(
    replicas: Sequence[TopicPartitionReplica], moves: Mapping[TopicPartitionReplica, str]
) -> list[AlterReplicaLogDir]:
    log_dirs: dict[str, dict[str, list[int]]] = {}
    for replica in replicas:
        topics = log_dirs.setdefault(moves[replica], {})
        topics.setdefault(replica.topic, []).append(replica.partition)
    return [
        AlterReplicaLogDir(
            path, [AlterReplicaLogDirTopic(topic, indexes) for topic, indexes in topics.items()]
        )
        for path, topics in log_dirs.items()
    ]
