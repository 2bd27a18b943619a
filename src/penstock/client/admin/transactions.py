"""Admin calls for transactions and producers: list, describe, abort, fence."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.client.admin.advice import BrokerTooOldError, broker_error, error_or_none
from penstock.client.admin.api_driver import (
    COORDINATOR_CODES,
    LEADER_CODES,
    gather_all,
    group_by_topic,
)
from penstock.client.admin.api_lookup import AdminApiLookup
from penstock.client.admin.model_transactions import (
    ProducerIdAndEpoch,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
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


class TransactionCalls(AdminApiLookup):
    """The calls for transactions and producers."""

    async def list_transactions(
        self,
        *,
        states: Iterable[TransactionState] = (),
        producer_ids: Iterable[int] = (),
        running_longer_than_ms: int | None = None,
        transactional_id_pattern: str | None = None,
        timeout_ms: int | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """Returns the transactional ids of each coordinator that match all filters, sorted.

        A filter by duration needs Kafka 3.8, by a pattern (RE2) of the id Kafka 4.1. Ids without
        an open transaction match a filter by duration: give a state with it.
        """
        deadline_ms = self._deadline(timeout_ms)
        cluster = await self._refresh_brokers("list_transactions", deadline_ms)
        requested, ids = [str(state) for state in states], list(producer_ids)

        def make(version: int) -> ListTransactionsRequest:
            request = ListTransactionsRequest(requested, ids)
            if running_longer_than_ms is not None:
                if version < 1:
                    raise _too_old_error("3.8", "how long transactions run")
                request.duration_filter = running_longer_than_ms
            if transactional_id_pattern is not None:
                if version < 2:
                    raise _too_old_error("4.1", "a pattern of the transactional id")
                request.transactional_id_pattern = transactional_id_pattern
            return request

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
                subject = f"transactions of broker {node_id}"
                return {node_id: broker_error(response.error_code, subject)}
            results = [
                TransactionListing(
                    state_item.transactional_id,
                    state_item.producer_id,
                    TransactionState.parse(state_item.transaction_state),
                )
                for state_item in response.transaction_states
            ]
            return {node_id: sorted(results)}

        return await self._request_each(
            "list_transactions",
            sorted(cluster.nodes),
            self._broker_ids(deadline_ms),
            send,
            deadline_ms,
            retriable=COORDINATOR_CODES,
        )

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, TransactionDescription]:
        """Returns the state of transactional ids, from their coordinators."""
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
                state.transactional_id: (
                    _description(node_id, state)
                    if state.error_code == ErrorCode.NONE
                    else broker_error(
                        state.error_code, f"transactional id {state.transactional_id}"
                    )
                )
                for state in response.transaction_states
            }

        return await self._request_each(
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
        """Returns the active producers of partitions, from their leaders or from a given broker."""
        deadline_ms = self._deadline(timeout_ms)

        async def send(
            node_id: int, keys: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, tuple[ProducerState, ...] | KafkaError]:
            topics = [
                DescribeProducersTopicRequest(*entry) for entry in group_by_topic(keys).items()
            ]
            response = await self._request(
                "describe_producers",
                node_id,
                DescribeProducersRequest(topics),
                DescribeProducersResponse,
                deadline_ms,
            )
            return {
                (partition := TopicPartition(topic.name, partition_data.partition_index)): (
                    _producers(partition_data)
                    if partition_data.error_code == ErrorCode.NONE
                    else broker_error(
                        partition_data.error_code,
                        f"partition {partition}",
                        partition_data.error_message,
                    )
                )
                for topic in response.topics
                for partition_data in topic.partitions
            }

        if broker_id is None:
            look_up = self._partition_leaders("describe_producers", deadline_ms)
        else:
            look_up = self._single_node(broker_id, deadline_ms)
        return await self._request_each(
            "describe_producers",
            partitions,
            look_up,
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
        """Writes an abort marker for a hanging transaction in a partition.

        The numbers are those of `describe_producers`. It is for transactions that the coordinator
        has lost; others are ended by their producer, or by `fence_producers`.
        """
        deadline_ms = self._deadline(timeout_ms)

        async def send(
            node_id: int, keys: Sequence[TopicPartition]
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
                (
                    marked := TopicPartition(topic.name, partition_data.partition_index)
                ): error_or_none(
                    partition_data.error_code, f"producer {producer_id} in partition {marked}"
                )
                for result in response.markers
                for topic in result.topics
                for partition_data in topic.partitions
            }

        await self._request_each(
            "abort_transaction",
            [partition],
            self._partition_leaders("abort_transaction", deadline_ms),
            send,
            deadline_ms,
            retriable=LEADER_CODES,
        )

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, ProducerIdAndEpoch]:
        """Fences the producers of transactional ids, and aborts their open transactions.

        A producer that is still running gets PRODUCER_FENCED with its next request.
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
                return broker_error(response.error_code, f"transactional id {transactional_id}")
            return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

        async def send(
            node_id: int, ids: Sequence[str]
        ) -> Mapping[str, ProducerIdAndEpoch | KafkaError]:
            results = await gather_all(fence(node_id, key) for key in ids)
            return dict(zip(ids, results, strict=True))

        return await self._request_each(
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
        """Aborts the open transaction of an id: `fence_producers` for one id."""
        await self.fence_producers([transactional_id], timeout_ms=timeout_ms)


def _too_old_error(since: str, filter_name: str) -> BrokerTooOldError:
    return BrokerTooOldError(
        f"the broker is older than Kafka {since} and cannot filter by {filter_name}",
        subject="`list_transactions`",
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
            producer.producer_id,
            producer.producer_epoch,
            producer.last_sequence,
            producer.last_timestamp,
            None if producer.coordinator_epoch < 0 else producer.coordinator_epoch,
            None if producer.current_txn_start_offset < 0 else producer.current_txn_start_offset,
        )
        for producer in sorted(
            partition.active_producers, key=lambda producer: producer.producer_id
        )
    )
