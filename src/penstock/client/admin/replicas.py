"""Where partitions lie: leaders elected, replicas moved between brokers."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.client.admin.advice import BrokerTooOldError, explain
from penstock.client.admin.errors import AdminError
from penstock.client.admin.model_topics import ElectionType, PartitionReassignment
from penstock.client.admin.routing import CONTROLLER_CODES, Router, Where, by_topic
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


class ReplicaCalls(Router):
    """Calls that the controller answers about partitions."""

    async def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, bool]:
        """Elect leaders anew: the preferred replicas, or any that is up (which may lose records).

        None is for all partitions. True: a leader was elected; False: it was the leader already.
        """
        deadline_ms = self._deadline(timeout_ms)
        wanted = None if partitions is None else list(partitions)

        def make(version: int) -> ElectLeadersRequest:
            if version < 1 and election_type is not ElectionType.PREFERRED:
                raise BrokerTooOldError(
                    "elect_leaders: this broker is older than Kafka 2.4 and only has preferred "
                    "elections"
                )
            topics = None
            if wanted is not None:
                topics = [
                    ElectLeadersTopicPartitions(topic, indexes)
                    for topic, indexes in by_topic(wanted).items()
                ]
            return ElectLeadersRequest(int(election_type), topics, self._left_ms(deadline_ms))

        response = await self._ask(
            "elect_leaders",
            Where.CONTROLLER,
            RequestBuilder(ElectLeadersRequest, make),
            ElectLeadersResponse,
            deadline_ms,
            verdict=lambda answer: (answer.error_code, None),
        )
        results: dict[TopicPartition, bool] = {}
        errors: dict[TopicPartition, KafkaError] = {}
        for topic in response.replica_election_results:
            for each in topic.partition_result:
                partition = TopicPartition(topic.topic, each.partition_id)
                if each.error_code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                    results[partition] = each.error_code == ErrorCode.NONE
                else:
                    about = f"partition {partition}"
                    errors[partition] = explain(each.error_code, about, each.error_message)
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
        """Begin to move partitions to these brokers, the preferred leader first; None cancels.

        The moves go on after the call: `list_partition_reassignments` shows what is left.
        """
        deadline_ms = self._deadline(timeout_ms)

        async def send(
            node_id: int, some: Sequence[TopicPartition]
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
                for topic, indexes in by_topic(some).items()
            ]
            response = await self._request(
                "alter_partition_reassignments",
                node_id,
                AlterPartitionReassignmentsRequest(
                    self._left_ms(deadline_ms), allow_replication_factor_change, topics
                ),
                AlterPartitionReassignmentsResponse,
                deadline_ms,
                needs=None if allow_replication_factor_change else (1, "4.1"),
            )
            if response.error_code != ErrorCode.NONE:
                error = explain(
                    response.error_code, "alter_partition_reassignments", response.error_message
                )
                if error.code not in CONTROLLER_CODES:
                    raise error
                return dict.fromkeys(some, error)
            return {
                (partition := TopicPartition(topic.name, each.partition_index)): (
                    None
                    if each.error_code == ErrorCode.NONE
                    else explain(each.error_code, f"partition {partition}", each.error_message)
                )
                for topic in response.responses
                for each in topic.partitions
            }

        await self._each(
            "alter_partition_reassignments",
            reassignments,
            self._at(Where.CONTROLLER, deadline_ms),
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
        """Moves that are under way, of these partitions or of all; sorted."""
        deadline_ms = self._deadline(timeout_ms)
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(topic, indexes)
                for topic, indexes in by_topic(partitions).items()
            ]
        response = await self._ask(
            "list_partition_reassignments",
            Where.CONTROLLER,
            ListPartitionReassignmentsRequest(self._left_ms(deadline_ms), topics),
            ListPartitionReassignmentsResponse,
            deadline_ms,
            verdict=lambda answer: (answer.error_code, answer.error_message),
        )
        found = {
            TopicPartition(topic.name, each.partition_index): PartitionReassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in response.topics
            for each in topic.partitions
        }
        return dict(sorted(found.items()))
