"""Admin calls for transactions and producers: list, describe, abort, fence."""

from collections.abc import Iterable, Sequence

from penstock.client.admin.advice import BrokerTooOldError, response_error
from penstock.client.admin.api_driver import AdminApiDriver, AdminCall, Results, gather_all
from penstock.client.admin.api_lookup import (
    broker_ids,
    coordinators,
    partition_leaders,
    single_node,
)
from penstock.client.admin.model_transactions import (
    ProducerIdAndEpoch,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from penstock.client.admin.results import (
    group_by_topic,
    no_value,
    number_or_none,
    partition_results,
)
from penstock.client.coordinators import CoordinatorKind
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
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


async def list_transactions(
    admin: AdminApiDriver,
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
    call = AdminCall(admin, "list_transactions", timeout_ms)
    cluster = await call.refresh_brokers()
    requested, ids = [str(state) for state in states], list(producer_ids)

    def build(version: int) -> ListTransactionsRequest:
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

    async def send(node_id: int, nodes: Sequence[int]) -> Results[int, list[TransactionListing]]:
        response = await call.request(node_id, build, ListTransactionsResponse)
        listings = sorted(
            TransactionListing(
                state.transactional_id,
                state.producer_id,
                TransactionState.parse(state.transaction_state),
            )
            for state in response.transaction_states
        )
        return {node_id: response_error(response, f"transactions of broker {node_id}") or listings}

    return await call.request_each(sorted(cluster.nodes), broker_ids(call), send)


async def describe_transactions(
    admin: AdminApiDriver, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
) -> dict[str, TransactionDescription]:
    """Returns the state of transactional ids, from their coordinators."""
    call = AdminCall(admin, "describe_transactions", timeout_ms)

    async def send(node_id: int, ids: Sequence[str]) -> Results[str, TransactionDescription]:
        request = DescribeTransactionsRequest(list(ids))
        response = await call.request(node_id, request, DescribeTransactionsResponse)
        return {
            state.transactional_id: (
                response_error(state, f"transactional id {state.transactional_id}")
                or _description(node_id, state)
            )
            for state in response.transaction_states
        }

    return await call.request_each(
        transactional_ids, coordinators(call, CoordinatorKind.TRANSACTION), send
    )


async def describe_producers(
    admin: AdminApiDriver,
    partitions: Iterable[TopicPartition],
    *,
    broker_id: int | None = None,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, tuple[ProducerState, ...]]:
    """Returns the active producers of partitions, from their leaders or from a given broker."""
    call = AdminCall(admin, "describe_producers", timeout_ms)

    async def send(
        node_id: int, keys: Sequence[TopicPartition]
    ) -> Results[TopicPartition, tuple[ProducerState, ...]]:
        topics = [DescribeProducersTopicRequest(*entry) for entry in group_by_topic(keys).items()]
        response = await call.request(
            node_id, DescribeProducersRequest(topics), DescribeProducersResponse
        )
        return partition_results(response.topics, _producers)

    strategy = partition_leaders(call) if broker_id is None else single_node(call, broker_id)
    return await call.request_each(partitions, strategy, send)


async def abort_transaction(
    admin: AdminApiDriver,
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
    call = AdminCall(admin, "abort_transaction", timeout_ms)

    async def send(node_id: int, keys: Sequence[TopicPartition]) -> Results[TopicPartition, None]:
        marker = WritableTxnMarker(
            producer_id,
            producer_epoch,
            False,
            [WritableTxnMarkerTopic(partition.topic, [partition.partition])],
            coordinator_epoch,
        )
        response = await call.request(
            node_id, WriteTxnMarkersRequest([marker]), WriteTxnMarkersResponse
        )
        topics = [topic for result in response.markers for topic in result.topics]
        return partition_results(topics, no_value, subject=f"producer {producer_id} in partition")

    await call.request_each([partition], partition_leaders(call), send)


async def fence_producers(
    admin: AdminApiDriver, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
) -> dict[str, ProducerIdAndEpoch]:
    """Fences the producers of transactional ids, and aborts their open transactions.

    A producer that is still running gets PRODUCER_FENCED with its next request.
    """
    call = AdminCall(admin, "fence_producers", timeout_ms)
    transaction_timeout_ms = timeout_ms
    if transaction_timeout_ms is None:
        transaction_timeout_ms = call.network.settings.request_timeout_ms

    async def fence(node_id: int, transactional_id: str) -> ProducerIdAndEpoch | KafkaError:
        request = InitProducerIdRequest(transactional_id, transaction_timeout_ms)
        response = await call.request(node_id, request, InitProducerIdResponse)
        producer = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        return response_error(response, f"transactional id {transactional_id}") or producer

    async def send(node_id: int, ids: Sequence[str]) -> Results[str, ProducerIdAndEpoch]:
        results = await gather_all(fence(node_id, key) for key in ids)
        return dict(zip(ids, results, strict=True))

    return await call.request_each(
        transactional_ids,
        coordinators(call, CoordinatorKind.TRANSACTION),
        send,
        retriable=(ErrorCode.CONCURRENT_TRANSACTIONS,),
    )


async def force_terminate_transaction(
    admin: AdminApiDriver, transactional_id: str, *, timeout_ms: int | None = None
) -> None:
    """Aborts the open transaction of an id: `fence_producers` for one id."""
    await fence_producers(admin, [transactional_id], timeout_ms=timeout_ms)


def _too_old_error(since: str, filter_name: str) -> BrokerTooOldError:
    return BrokerTooOldError(
        f"the broker is older than Kafka {since} and cannot filter by {filter_name}",
        subject="`list_transactions`",
    )


def _description(
    node_id: int, state: DescribeTransactionsTransactionState
) -> TransactionDescription:
    return TransactionDescription(
        node_id,
        TransactionState.parse(state.transaction_state),
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        number_or_none(state.transaction_start_time_ms),
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
            number_or_none(producer.coordinator_epoch),
            number_or_none(producer.current_txn_start_offset),
        )
        for producer in sorted(
            partition.active_producers, key=lambda producer: producer.producer_id
        )
    )
