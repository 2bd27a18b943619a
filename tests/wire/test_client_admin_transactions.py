"""The admin client with our broker: transactions and producers (P3, P4)."""

from collections.abc import Iterator, Mapping

import pytest

from penstock.client.admin import AdminError, NewTopic, TransactionListing, TransactionState
from penstock.client.admin.admin import Admin
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.coordinator.group_client import wait_until
from tests.support.coordinator.transaction_client import Generation, TxnProducer

T0 = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {
        "transaction.state.log.num.partitions": "2",
        "transaction.partition.verification.enable": "false",
    }


@pytest.fixture(scope="module")
def admin(broker: RunningBroker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as first:
        first.create_topics([NewTopic("t", 1, 1), NewTopic("u", 1, 1)])
        yield first


def test_an_open_transaction_is_described(admin: Admin, client: WireClient) -> None:
    producer = TxnProducer.started(client, "open", timeout_ms=30_000)
    idle = TxnProducer.started(client, "idle")
    first = producer.write("u", b"a")
    results = admin.describe_transactions(["open", "idle"])
    transaction = results["open"]
    assert (transaction.state, transaction.coordinator_id) == (TransactionState.ONGOING, 0)
    assert (transaction.producer_id, transaction.producer_epoch) == (
        producer.producer_id,
        producer.epoch,
    )
    assert (transaction.timeout_ms, transaction.partitions) == (30_000, (TopicPartition("u", 0),))
    assert (transaction.start_time_ms or 0) > 0
    assert (results["idle"].state, results["idle"].start_time_ms) == (TransactionState.EMPTY, None)
    listed = {listing.transactional_id: listing for listing in admin.list_transactions()[0]}
    assert listed["open"][1:] == (producer.producer_id, TransactionState.ONGOING)

    def ids(results: Mapping[int, list[TransactionListing]]) -> set[str]:
        return {transaction.transactional_id for transaction in results[0]} & {"open", "idle"}

    ongoing = [TransactionState.ONGOING]
    assert ids(admin.list_transactions(states=ongoing)) == {"open"}
    assert ids(admin.list_transactions(producer_ids=[idle.producer_id])) == {"idle"}
    slow = admin.list_transactions(states=ongoing, running_longer_than_ms=600_000)
    assert ids(slow) == set()
    assert ids(admin.list_transactions(transactional_id_pattern="o.*")) == {"open"}
    state = admin.describe_producers([TopicPartition("u", 0)])[TopicPartition("u", 0)][0]
    assert (state.producer_id, state.producer_epoch) == (producer.producer_id, producer.epoch)
    assert (state.last_sequence, state.current_transaction_start_offset) == (0, first)
    producer.commit()
    wait_until(lambda: _open_at(admin, TopicPartition("u", 0)) is None)


def _open_at(admin: Admin, partition: TopicPartition) -> int | None:
    return admin.describe_producers([partition])[partition][0].current_transaction_start_offset


def test_unknown_transactions_and_partitions_raise_errors(admin: Admin) -> None:
    with pytest.raises(AdminError, match="check it against list_transactions") as failed:
        admin.describe_transactions(["nobody"])
    assert failed.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    with pytest.raises(AdminError) as nowhere:
        admin.describe_producers([TopicPartition("nowhere", 0)], timeout_ms=150)
    assert nowhere.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(AdminError) as elsewhere:
        admin.describe_producers([TopicPartition("nowhere", 0)], broker_id=0)
    assert elsewhere.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_producers_are_fenced(admin: Admin, client: WireClient) -> None:
    """P4: the open transaction is aborted and its producer is fenced."""
    first = TxnProducer.started(client, "fenced", Generation.V1)
    first.write("t", b"never seen")
    results = admin.fence_producers(["fenced", "fresh"])
    assert results["fenced"].producer_id == first.producer_id
    assert results["fenced"].epoch > first.epoch
    assert results["fresh"].epoch == 0
    assert first.end(commit=True) in (
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    )
    second = TxnProducer.started(client, "terminated")
    second.write("t", b"never seen either")
    admin.force_terminate_transaction("terminated")
    wait_until(
        lambda: (
            admin.describe_transactions(["terminated"])["terminated"].state
            is not TransactionState.ONGOING
        )
    )


def test_a_hanging_transaction_is_aborted(admin: Admin, client: WireClient) -> None:
    """P4: no coordinator knows the transaction."""
    admin.create_topics([NewTopic("hanging", 1, 1)])
    partition = TopicPartition("hanging", 0)
    producer = TxnProducer(client, "nobody-knows")
    producer.producer_id, producer.epoch = 4711, 3
    assert producer.send("hanging", b"hangs", version=11).error_code == 0
    state = admin.describe_producers([partition])[partition][0]
    assert (state.producer_id, state.current_transaction_start_offset) == (4711, 0)
    epoch = -1 if state.coordinator_epoch is None else state.coordinator_epoch
    with pytest.raises(AdminError, match="describe_producers shows") as failed:
        admin.abort_transaction(partition, 4711, 2, epoch)
    assert failed.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    admin.abort_transaction(partition, 4711, 3, max(0, epoch))
    assert _open_at(admin, partition) is None
