"""Admin calls for leaders and replicas: elections and reassignments."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.client.admin.advice import BrokerTooOldError, broker_error, error_or_none
from penstock.client.admin.api_driver import (
    CONTROLLER_CODES,
    AdminApiDriver,
    NodeProvider,
    code_and_message,
    code_only,
    group_by_topic,
)
from penstock.client.admin.errors import AdminError
from penstock.client.admin.model_topics import ElectionType, PartitionReassignment
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.network_client import RequestBuilder
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


class ReplicaCalls(AdminApiDriver):
    """The calls to the controller for partitions."""

    async def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, bool]:
        """Elects leaders: the preferred replicas, or any that is up (which may lose records).

        `None` stands for all partitions. Returns True for partitions with a new leader, False for
        those whose leader was the right one already.
        """
        deadline_ms = self._deadline(timeout_ms)
        requested = None if partitions is None else list(partitions)

        def make(version: int) -> ElectLeadersRequest:
            if version < 1 and election_type is not ElectionType.PREFERRED:
                raise BrokerTooOldError(
                    "this broker is older than Kafka 2.4 and only has preferred elections",
                    subject="`elect_leaders`",
                )
            topics = None
            if requested is not None:
                topics = [
                    ElectLeadersTopicPartitions(topic, indexes)
                    for topic, indexes in group_by_topic(requested).items()
                ]
            return ElectLeadersRequest(int(election_type), topics, self._remaining_ms(deadline_ms))

        response = await self._request_until_done(
            "elect_leaders",
            NodeProvider.CONTROLLER,
            RequestBuilder(ElectLeadersRequest, make),
            ElectLeadersResponse,
            deadline_ms,
            get_error=code_only,
        )
        results: dict[TopicPartition, bool] = {}
        errors: dict[TopicPartition, KafkaError] = {}
        for topic in response.replica_election_results:
            for item in topic.partition_result:
                partition = TopicPartition(topic.topic, item.partition_id)
                if item.error_code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                    results[partition] = item.error_code == ErrorCode.NONE
                else:
                    subject = f"partition {partition}"
                    errors[partition] = broker_error(item.error_code, subject, item.error_message)
        if errors:
            raise AdminError("elect_leaders", errors, results)
        return results

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: int | None = None,
    ) -> None:
        """Starts to move partitions to these brokers, the preferred leader first; None cancels.

        The moves continue after the call; `list_partition_reassignments` shows them.
        """
        deadline_ms = self._deadline(timeout_ms)

        async def send(
            node_id: int, keys: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, KafkaError | None]:
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
            response = await self._request(
                "alter_partition_reassignments",
                node_id,
                AlterPartitionReassignmentsRequest(
                    self._remaining_ms(deadline_ms), allow_replication_factor_change, topics
                ),
                AlterPartitionReassignmentsResponse,
                deadline_ms,
                required=None if allow_replication_factor_change else (1, "4.1"),
            )
            if response.error_code != ErrorCode.NONE:
                error = broker_error(
                    response.error_code, "alter_partition_reassignments", response.error_message
                )
                if error.code not in CONTROLLER_CODES:
                    raise error
                return dict.fromkeys(keys, error)
            return {
                (
                    partition := TopicPartition(topic.name, partition_data.partition_index)
                ): error_or_none(
                    partition_data.error_code,
                    f"partition {partition}",
                    partition_data.error_message,
                )
                for topic in response.responses
                for partition_data in topic.partitions
            }

        await self._request_each(
            "alter_partition_reassignments",
            reassignments,
            self._single_node(NodeProvider.CONTROLLER, deadline_ms),
            send,
            deadline_ms,
            retriable=CONTROLLER_CODES,
        )

    async def list_partition_reassignments(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Returns the reassignments under way, of these partitions or of all; sorted."""
        deadline_ms = self._deadline(timeout_ms)
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(topic, indexes)
                for topic, indexes in group_by_topic(partitions).items()
            ]
        response = await self._request_until_done(
            "list_partition_reassignments",
            NodeProvider.CONTROLLER,
            ListPartitionReassignmentsRequest(self._remaining_ms(deadline_ms), topics),
            ListPartitionReassignmentsResponse,
            deadline_ms,
            get_error=code_and_message,
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
