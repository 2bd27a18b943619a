"""The folders of brokers and the replicas in them."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.client.admin.advice import explain
from penstock.client.admin.model_cluster import LogDirDescription, ReplicaInfo, ReplicaLogDir
from penstock.client.admin.model_topics import TopicPartitionReplica
from penstock.client.admin.routing import Router
from penstock.core.errors import ErrorCode, KafkaError
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


class LogDirCalls(Router):
    """Calls about folders."""

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        *,
        topics: Iterable[str] | None = None,
        timeout_ms: int | None = None,
    ) -> dict[int, dict[str, LogDirDescription]]:
        """The folders of brokers (None: of all that are up) with the replicas of these topics."""
        deadline_ms = self._deadline(timeout_ms)
        cluster = await self._brokers("describe_log_dirs", deadline_ms)
        wanted = sorted(cluster.nodes if brokers is None else set(brokers))
        names = None if topics is None else set(topics)

        async def locate(ids: Sequence[int]) -> Mapping[int, int | KafkaError]:
            return await self._these(ids, deadline_ms)

        async def send(
            node_id: int, ids: Sequence[int]
        ) -> Mapping[int, dict[str, LogDirDescription] | KafkaError]:
            response = await self._request(
                "describe_log_dirs",
                node_id,
                DescribeLogDirsRequest(None),
                DescribeLogDirsResponse,
                deadline_ms,
            )
            code = response.error_code
            if code == ErrorCode.NONE and not response.results:
                # Before version 3 there was no other way to say so.
                code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            if code != ErrorCode.NONE:
                return dict.fromkeys(ids, explain(code, f"log dirs of broker {node_id}"))
            found = {each.log_dir: _folder(each, names) for each in response.results}
            return {node_id: dict(sorted(found.items()))}

        return await self._each(
            "describe_log_dirs", wanted, locate, send, deadline_ms, retriable=()
        )

    async def describe_replica_log_dirs(
        self, replicas: Iterable[TopicPartitionReplica], *, timeout_ms: int | None = None
    ) -> dict[TopicPartitionReplica, ReplicaLogDir]:
        """Where replicas lie, and where they are moving to."""
        wanted = list(dict.fromkeys(replicas))
        topics = {replica.topic for replica in wanted}
        brokers = {replica.broker_id for replica in wanted}
        if not wanted:
            return {}
        folders = await self.describe_log_dirs(brokers, topics=topics, timeout_ms=timeout_ms)
        found: dict[TopicPartitionReplica, ReplicaLogDir] = {}
        for replica in wanted:
            partition = TopicPartition(replica.topic, replica.partition)
            place = ReplicaLogDir(None, -1, None, -1)
            for path, folder in folders[replica.broker_id].items():
                info = folder.replicas.get(partition)
                if info is None:
                    continue
                if info.is_future:
                    place = place._replace(future=path, future_offset_lag=info.offset_lag)
                else:
                    place = place._replace(current=path, current_offset_lag=info.offset_lag)
            found[replica] = place
        return found

    async def alter_replica_log_dirs(
        self, moves: Mapping[TopicPartitionReplica, str], *, timeout_ms: int | None = None
    ) -> None:
        """Begin to move replicas to other folders of their brokers.

        The moves go on after the call: `describe_replica_log_dirs` shows what is left. A replica
        that the broker does not have is REPLICA_NOT_AVAILABLE; should it come, the folder is used.
        """
        deadline_ms = self._deadline(timeout_ms)

        async def locate(
            replicas: Sequence[TopicPartitionReplica],
        ) -> Mapping[TopicPartitionReplica, int | KafkaError]:
            places = await self._these({each.broker_id for each in replicas}, deadline_ms)
            return {each: places[each.broker_id] for each in replicas}

        async def send(
            node_id: int, replicas: Sequence[TopicPartitionReplica]
        ) -> Mapping[TopicPartitionReplica, KafkaError | None]:
            response = await self._request(
                "alter_replica_log_dirs",
                node_id,
                AlterReplicaLogDirsRequest(_by_folder(replicas, moves)),
                AlterReplicaLogDirsResponse,
                deadline_ms,
            )
            return {
                (
                    replica := TopicPartitionReplica(
                        topic.topic_name, each.partition_index, node_id
                    )
                ): (
                    None
                    if each.error_code == ErrorCode.NONE
                    else explain(
                        each.error_code,
                        f"{replica.topic}-{replica.partition} on broker {node_id}",
                    )
                )
                for topic in response.results
                for each in topic.partitions
            }

        await self._each("alter_replica_log_dirs", moves, locate, send, deadline_ms, retriable=())


def _folder(result: DescribeLogDirsResult, names: set[str] | None) -> LogDirDescription:
    error = None
    if result.error_code != ErrorCode.NONE:
        error = explain(result.error_code, f"folder {result.log_dir}")
    replicas = {
        TopicPartition(topic.name, each.partition_index): ReplicaInfo(
            each.partition_size, each.offset_lag, each.is_future_key
        )
        for topic in result.topics
        for each in topic.partitions
        if names is None or topic.name in names
    }
    return LogDirDescription(
        error,
        dict(sorted(replicas.items())),
        None if result.total_bytes < 0 else result.total_bytes,
        None if result.usable_bytes < 0 else result.usable_bytes,
        result.is_cordoned,
    )


def _by_folder(
    replicas: Sequence[TopicPartitionReplica], moves: Mapping[TopicPartitionReplica, str]
) -> list[AlterReplicaLogDir]:
    folders: dict[str, dict[str, list[int]]] = {}
    for replica in replicas:
        topics = folders.setdefault(moves[replica], {})
        topics.setdefault(replica.topic, []).append(replica.partition)
    return [
        AlterReplicaLogDir(
            path, [AlterReplicaLogDirTopic(topic, indexes) for topic, indexes in topics.items()]
        )
        for path, topics in folders.items()
    ]
