"""Transactions and producers: looked at, and ended when they hang."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.client.admin.advice import BrokerTooOldError, explain
from penstock.client.admin.locating import Locator
from penstock.client.admin.model_transactions import (
    ProducerIdAndEpoch,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from penstock.client.admin.routing import (
    COORDINATOR_CODES,
    LEADER_CODES,
    by_topic,
    together,
)
from penstock.client.coordinators import CoordinatorKind
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.network_client import RequestBuilder
from penstock.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicRequest,
    PartitionResponse,
)
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsTransactionState,
)
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


class TransactionCalls(Locator):
    """Calls about transactions."""

    async def list_transactions(
        self,
        *,
        states: Iterable[TransactionState] = (),
        producer_ids: Iterable[int] = (),
        running_longer_than_ms: int | None = None,
        transactional_id_pattern: str | None = None,
        timeout_ms: int | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """The transactional ids that each coordinator knows, sorted; without filters: all.

        Filters by duration need Kafka 3.8, by a pattern (RE2) of the id Kafka 4.1. Ids
        without an open transaction pass a filter by duration: give a state with it.
        """
        deadline_ms = self._deadline(timeout_ms)
        cluster = await self._brokers("list_transactions", deadline_ms)
        wanted, ids = [str(state) for state in states], list(producer_ids)

        def make(version: int) -> ListTransactionsRequest:
            request = ListTransactionsRequest(wanted, ids)
            if running_longer_than_ms is not None:
                if version < 1:
                    raise _too_old("3.8", "how long transactions run")
                request.duration_filter = running_longer_than_ms
            if transactional_id_pattern is not None:
                if version < 2:
                    raise _too_old("4.1", "a pattern of the transactional id")
                request.transactional_id_pattern = transactional_id_pattern
            return request

        async def locate(nodes: Sequence[int]) -> Mapping[int, int | KafkaError]:
            return await self._these(nodes, deadline_ms)

        async def send(
            node_id: int, nodes: Sequence[int]
        ) -> Mapping[int, list[TransactionListing] | KafkaError]:
            response = await self._request(
                "list_transactions",
                node_id,
                RequestBuilder(ListTransactionsRequest, make),
                ListTransactionsResponse,
                deadline_ms,
            )
            if response.error_code != ErrorCode.NONE:
                about = f"transactions of broker {node_id}"
                return {node_id: explain(response.error_code, about)}
            found = [
                TransactionListing(
                    each.transactional_id,
                    each.producer_id,
                    TransactionState.parse(each.transaction_state),
                )
                for each in response.transaction_states
            ]
            return {node_id: sorted(found)}

        return await self._each(
            "list_transactions",
            sorted(cluster.nodes),
            locate,
            send,
            deadline_ms,
            retriable=COORDINATOR_CODES,
        )

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, TransactionDescription]:
        """The state of transactional ids at their coordinators."""
        deadline_ms = self._deadline(timeout_ms)

        async def send(
            node_id: int, ids: Sequence[str]
        ) -> Mapping[str, TransactionDescription | KafkaError]:
            response = await self._request(
                "describe_transactions",
                node_id,
                DescribeTransactionsRequest(list(ids)),
                DescribeTransactionsResponse,
                deadline_ms,
            )
            return {
                each.transactional_id: (
                    _description(node_id, each)
                    if each.error_code == ErrorCode.NONE
                    else explain(each.error_code, f"transactional id {each.transactional_id}")
                )
                for each in response.transaction_states
            }

        return await self._each(
            "describe_transactions",
            transactional_ids,
            self._coordinators("describe_transactions", CoordinatorKind.TRANSACTION, deadline_ms),
            send,
            deadline_ms,
            retriable=COORDINATOR_CODES,
        )

    async def describe_producers(
        self,
        partitions: Iterable[TopicPartition],
        *,
        broker_id: int | None = None,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """The producers that partitions know: as their leaders do, or a given broker."""
        deadline_ms = self._deadline(timeout_ms)

        async def send(
            node_id: int, some: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, tuple[ProducerState, ...] | KafkaError]:
            topics = [DescribeProducersTopicRequest(*each) for each in by_topic(some).items()]
            response = await self._request(
                "describe_producers",
                node_id,
                DescribeProducersRequest(topics),
                DescribeProducersResponse,
                deadline_ms,
            )
            return {
                (partition := TopicPartition(topic.name, each.partition_index)): (
                    _producers(each)
                    if each.error_code == ErrorCode.NONE
                    else explain(each.error_code, f"partition {partition}", each.error_message)
                )
                for topic in response.topics
                for each in topic.partitions
            }

        if broker_id is None:
            locate = self._leaders("describe_producers", deadline_ms)
        else:
            locate = self._at(broker_id, deadline_ms)
        return await self._each(
            "describe_producers",
            partitions,
            locate,
            send,
            deadline_ms,
            retriable=LEADER_CODES if broker_id is None else (),
        )

    async def abort_transaction(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Write an abort marker for a transaction that hangs in a partition.

        The numbers are those of `describe_producers`. Only where the coordinator has forgotten the
        transaction: an open one must be ended by its producer, or by `fence_producers`.
        """
        deadline_ms = self._deadline(timeout_ms)

        async def send(
            node_id: int, some: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, KafkaError | None]:
            marker = WritableTxnMarker(
                producer_id,
                producer_epoch,
                False,
                [WritableTxnMarkerTopic(partition.topic, [partition.partition])],
                coordinator_epoch,
            )
            response = await self._request(
                "abort_transaction",
                node_id,
                WriteTxnMarkersRequest([marker]),
                WriteTxnMarkersResponse,
                deadline_ms,
            )
            return {
                (written := TopicPartition(topic.name, each.partition_index)): (
                    None
                    if each.error_code == ErrorCode.NONE
                    else explain(each.error_code, f"producer {producer_id} in partition {written}")
                )
                for result in response.markers
                for topic in result.topics
                for each in topic.partitions
            }

        await self._each(
            "abort_transaction",
            [partition],
            self._leaders("abort_transaction", deadline_ms),
            send,
            deadline_ms,
            retriable=LEADER_CODES,
        )

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, ProducerIdAndEpoch]:
        """Take transactional ids away from their producers: open transactions are aborted.

        A producer that is still running gets PRODUCER_FENCED at its next step.
        """
        deadline_ms = self._deadline(timeout_ms)
        transaction_timeout_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms

        async def fence(node_id: int, transactional_id: str) -> ProducerIdAndEpoch | KafkaError:
            response = await self._request(
                "fence_producers",
                node_id,
                InitProducerIdRequest(transactional_id, transaction_timeout_ms),
                InitProducerIdResponse,
                deadline_ms,
            )
            if response.error_code != ErrorCode.NONE:
                return explain(response.error_code, f"transactional id {transactional_id}")
            return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

        async def send(
            node_id: int, ids: Sequence[str]
        ) -> Mapping[str, ProducerIdAndEpoch | KafkaError]:
            answers = await together(fence(node_id, each) for each in ids)
            return dict(zip(ids, answers, strict=True))

        return await self._each(
            "fence_producers",
            transactional_ids,
            self._coordinators("fence_producers", CoordinatorKind.TRANSACTION, deadline_ms),
            send,
            deadline_ms,
            retriable=COORDINATOR_CODES | {ErrorCode.CONCURRENT_TRANSACTIONS},
        )

    async def force_terminate_transaction(
        self, transactional_id: str, *, timeout_ms: int | None = None
    ) -> None:
        """Abort the open transaction of an id, whoever began it: `fence_producers` for one."""
        await self.fence_producers([transactional_id], timeout_ms=timeout_ms)


def _too_old(since: str, what: str) -> BrokerTooOldError:
    return BrokerTooOldError(
        f"list_transactions: the broker is older than Kafka {since} and cannot filter by {what}"
    )


def _description(
    node_id: int, state: DescribeTransactionsTransactionState
) -> TransactionDescription:
    start = state.transaction_start_time_ms
    return TransactionDescription(
        node_id,
        TransactionState.parse(state.transaction_state),
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        None if start < 0 else start,
        tuple(
            sorted(
                TopicPartition(topic.topic, index)
                for topic in state.topics
                for index in topic.partitions
            )
        ),
    )


def _producers(partition: PartitionResponse) -> tuple[ProducerState, ...]:
    return tuple(
        ProducerState(
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.last_timestamp,
            None if each.coordinator_epoch < 0 else each.coordinator_epoch,
            None if each.current_txn_start_offset < 0 else each.current_txn_start_offset,
        )
        for each in sorted(partition.active_producers, key=lambda each: each.producer_id)
    )
