"""Admin calls for leaders and replicas: elections and reassignments."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.client.admin.advice import BrokerTooOldError, response_error
from penstock.client.admin.api_driver import AdminApiDriver, AdminCall, NodeProvider, Results
from penstock.client.admin.api_lookup import CONTROLLER_CODES, single_node
from penstock.client.admin.model_topics import ElectionType, PartitionReassignment
from penstock.client.admin.results import group_by_topic, no_value, partition_results
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicPartitions,
)
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)


async def elect_leaders(
    admin: AdminApiDriver,
    election_type: ElectionType,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, bool]:
    """Elects leaders: the preferred replicas, or any that is up (which may lose records).

    `None` stands for all partitions. Returns True for partitions with a new leader, False for
    those whose leader was the right one already.
    """
    call = AdminCall(admin, "elect_leaders", timeout_ms)
    topics = None
    if partitions is not None:
        topics = [
            ElectLeadersTopicPartitions(topic, indexes)
            for topic, indexes in group_by_topic(partitions).items()
        ]

    def build(version: int) -> ElectLeadersRequest:
        if version < 1 and election_type is not ElectionType.PREFERRED:
            raise BrokerTooOldError(
                "this broker is older than Kafka 2.4 and only has preferred elections",
                subject="`elect_leaders`",
            )
        return ElectLeadersRequest(int(election_type), topics, call.remaining_ms())

    response = await call.request_until_done(NodeProvider.CONTROLLER, build, ElectLeadersResponse)
    results: dict[TopicPartition, bool | KafkaError] = {}
    for topic in response.replica_election_results:
        for partition_result in topic.partition_result:
            partition = TopicPartition(topic.topic, partition_result.partition_id)
            is_needed = partition_result.error_code != ErrorCode.ELECTION_NOT_NEEDED
            error = (
                response_error(partition_result, f"partition {partition}") if is_needed else None
            )
            results[partition] = is_needed if error is None else error
    return call.checked(results)


async def alter_partition_reassignments(
    admin: AdminApiDriver,
    reassignments: Mapping[TopicPartition, Sequence[int] | None],
    *,
    allow_replication_factor_change: bool = True,
    timeout_ms: int | None = None,
) -> None:
    """Starts to move partitions to these brokers, the preferred leader first; None cancels.

    The moves continue after the call; `list_partition_reassignments` shows them.
    """
    call = AdminCall(admin, "alter_partition_reassignments", timeout_ms)

    async def send(node_id: int, keys: Sequence[TopicPartition]) -> Results[TopicPartition, None]:
        topics = [
            ReassignableTopic(
                topic,
                [
                    ReassignablePartition(index, None if target is None else list(target))
                    for index in indexes
                    for target in (reassignments[TopicPartition(topic, index)],)
                ],
            )
            for topic, indexes in group_by_topic(keys).items()
        ]
        response = await call.request(
            node_id,
            AlterPartitionReassignmentsRequest(
                call.remaining_ms(), allow_replication_factor_change, topics
            ),
            AlterPartitionReassignmentsResponse,
            required=None if allow_replication_factor_change else (1, "4.1"),
        )
        error = response_error(response, call.name)
        if error is None:
            return partition_results(response.responses, no_value)
        if error.code not in CONTROLLER_CODES:
            raise error
        return dict.fromkeys(keys, error)

    await call.request_each(reassignments, single_node(call, NodeProvider.CONTROLLER), send)


async def list_partition_reassignments(
    admin: AdminApiDriver,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, PartitionReassignment]:
    """Returns the reassignments under way, of these partitions or of all; sorted."""
    call = AdminCall(admin, "list_partition_reassignments", timeout_ms)
    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsTopics(topic, indexes)
            for topic, indexes in group_by_topic(partitions).items()
        ]
    response = await call.request_until_done(
        NodeProvider.CONTROLLER,
        ListPartitionReassignmentsRequest(call.remaining_ms(), topics),
        ListPartitionReassignmentsResponse,
    )
    results = {
        TopicPartition(topic.name, partition.partition_index): PartitionReassignment(
            tuple(partition.replicas),
            tuple(partition.adding_replicas),
            tuple(partition.removing_replicas),
        )
        for topic in response.topics
        for partition in topic.partitions
    }
    return dict(sorted(results.items()))
