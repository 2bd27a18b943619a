"""Requests of transactional clients and their responses, to compare our broker with Kafka's.

Producer ids are not part of the results: every broker assigns its own.
"""

from typing import Any

from penstock.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
)
from penstock.protocol.messages.describe_transactions import DescribeTransactionsRequest
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.list_transactions import ListTransactionsRequest
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.broker.in_process import WireClient
from tests.support.coordinator.transaction_client import (
    Generation,
    TxnProducer,
    described,
    fetched_committed,
    produce_request,
    txn_batch,
    wait_for_state,
)
from tests.support.kafka.broker import wait_until
from tests.support.kafka.transaction_consumer_requests import (
    TOPIC,
    Results,
    name_of,
    offsets,
    reading,
)
from tests.support.protocol.requests import make_topic


def transactions(client: WireClient) -> Results:
    """Everything that has to do with transactions."""
    make_topic(client, TOPIC, 3)
    find = FindCoordinatorRequest("any", 1)
    wait_until(lambda: client.request(find, 3).error_code == 0, "the transaction coordinator")
    wait_until(lambda: client.request(find_group(), 3).error_code == 0, "the group coordinator")
    result: Results = {}
    questions = (
        _finding,
        _initializing,
        _first_batches,
        _ends,
        _admin,
        _markers,
        _adding,
        _fencing,
        offsets,
        reading,
    )
    for question in questions:
        result |= {f"{question.__name__}: {key}": item for key, item in question(client).items()}
    return result


def find_group() -> FindCoordinatorRequest:
    return FindCoordinatorRequest("group", 0)


def _finding(client: WireClient) -> Results:
    """FindCoordinator, of one and of several."""
    result: Results = {}
    for version in range(4):
        for key in ("x", ""):
            for key_type in (0, 1, 9) if version else (0,):
                response = client.request(FindCoordinatorRequest(key, key_type), version)
                result[f"{key!r} {key_type} {version}"] = (
                    name_of(response.error_code),
                    response.port > 0,
                )
    for version in (4, 5, 6):
        for key_type in (0, 1, 9):
            response = client.request(
                FindCoordinatorRequest("", key_type, ["x", "", "y", "x"]), version
            )
            result[f"several {key_type} {version}"] = [
                (coordinator.key, name_of(coordinator.error_code), coordinator.port > 0)
                for coordinator in response.coordinators
            ]
    return result


def _initializing(client: WireClient) -> Results:
    """InitProducerId with all that it may not have."""
    cases: dict[str, tuple[str | None, int, int, int]] = {
        "no id": ("", 1000, -1, -1),
        "no timeout": ("i", 0, -1, -1),
        "negative timeout": ("i", -1, -1, -1),
        "longest timeout": ("i", 900_000, -1, -1),
        "longer timeout": ("i", 900_001, -1, -1),
        "epoch alone": ("i", 1000, -1, 3),
        "id alone": ("i", 1000, 77, -1),
        "nobody knows it": ("i-unknown", 1000, 123_456_789, 3),
        "another's id": ("i", 1000, 123_456_789, 3),
        "negative id and epoch": ("i", 1000, -2, -2),
        "nobody's, with an id": (None, 1000, 77, 3),
    }
    result: Results = {}
    for version in (0, 2, 3, 4, 5):
        for name, (transactional_id, timeout_ms, producer_id, epoch) in cases.items():
            if version < 3 and (producer_id, epoch) != (-1, -1):
                continue
            request = InitProducerIdRequest(transactional_id, timeout_ms, producer_id, epoch)
            response = client.request(request, version)
            result[f"{name}, {version}"] = (
                name_of(response.error_code),
                response.producer_epoch,
                response.producer_id >= 0,
            )
    return result


def _produce_results(message: Any) -> list[tuple[object, ...]]:
    """Returns the results in a Produce response, without error messages."""
    return [
        (
            name_of(response.error_code),
            response.base_offset,
            response.log_append_time_ms,
            response.log_start_offset,
            len(response.record_errors),
            response.current_leader.leader_id,
        )
        for topic in message.responses
        for response in topic.partition_responses
    ]


def _first_batches(client: WireClient) -> Results:
    """Batches that the coordinator refuses when the partition verifies them."""
    result: Results = {}
    for version in (8, 10, 11, 12):
        producer = TxnProducer.started(client, f"batches-{version}", Generation.V1)
        epoch, id_ = producer.epoch, producer.producer_id
        cases: dict[str, tuple[str | None, dict[tuple[str, int], bytes]]] = {
            "wrong id": (producer.transactional_id, {(TOPIC, 1): txn_batch(9**9, 0, 0, b"x")}),
            "new epoch": (producer.transactional_id, {(TOPIC, 1): txn_batch(id_, 9, 0, b"x")}),
            "unknown transactional id": ("nobody", {(TOPIC, 1): txn_batch(id_, epoch, 0, b"x")}),
            "empty transactional id": ("", {(TOPIC, 1): txn_batch(id_, epoch, 0, b"x")}),
            "no transactional id": (None, {(TOPIC, 1): txn_batch(id_, epoch, 0, b"x")}),
            "two producers": (
                producer.transactional_id,
                {
                    (TOPIC, 1): txn_batch(id_, epoch, 0, b"x"),
                    (TOPIC, 2): txn_batch(9**9, epoch, 0, b"x"),
                },
            ),
            "an unknown partition": (
                producer.transactional_id,
                {(TOPIC, 9): txn_batch(id_, epoch, 0, b"x")},
            ),
        }
        if version < 12:
            cases["not added"] = (
                producer.transactional_id,
                {(TOPIC, 1): txn_batch(id_, epoch, 0, b"x")},
            )
        for name, (transactional_id, batches) in cases.items():
            response = client.request(produce_request(transactional_id, batches), version)
            result[f"{name}, {version}"] = _produce_results(response)
    return result


def _ends(client: WireClient) -> Results:
    """EndTxn requests that do not match the state."""
    result: Results = {}
    for generation, versions in ((Generation.V1, range(5)), (Generation.V2, (5,))):
        for version in versions:
            name = f"ends-{version}"
            producer = TxnProducer.started(client, name, generation)

            def end(
                what: str,
                transactional_id: str,
                id_change: int,
                epoch_change: int,
                commit: bool,
                *,
                producer: TxnProducer = producer,
                version: int = version,
            ) -> None:
                request = EndTxnRequest(
                    transactional_id,
                    producer.producer_id + id_change,
                    producer.epoch + epoch_change,
                    commit,
                )
                response = client.request(request, version)
                result[f"{what}, {version}"] = (
                    name_of(response.error_code),
                    response.producer_epoch,
                    response.producer_id >= 0,
                )
                if version >= 5 and response.error_code == 0:
                    producer.take_over(response)
                    wait_for_state(
                        client, transactional_id, "CompleteCommit" if commit else "CompleteAbort"
                    )

            for what in ("empty", "ongoing", "committed"):
                if what == "ongoing":
                    producer.write(TOPIC, b"x")
                if what == "committed":
                    producer.commit()
                end(f"{what}, no id", "", 0, 0, True)
                end(f"{what}, unknown id", "nobody", 0, 0, True)
                end(f"{what}, another's", name, 1, 0, True)
                end(f"{what}, later epoch", name, 0, 1, True)
                end(f"{what}, earlier epoch", name, 0, -2, True)
                if what != "ongoing":
                    end(f"{what}, commit", name, 0, 0, True)
                    end(f"{what}, commit before", name, 0, -1, True)
                    end(f"{what}, abort before", name, 0, -1, False)
                    end(f"{what}, abort", name, 0, 0, False)
    return result


def _admin(client: WireClient) -> Results:
    """DescribeTransactions, ListTransactions and DescribeProducers."""
    producer = TxnProducer.started(client, "admin", timeout_ms=12_345)
    result: Results = {"empty": _described(client, "admin")}
    offset = producer.write(TOPIC, b"x", b"y", partition=2)
    producer.write(TOPIC, b"x")
    result["ongoing"] = _described(client, "admin")
    request = DescribeProducersRequest([DescribeProducersTopicRequest(TOPIC, [2])])
    active = {
        active_producer.producer_id: active_producer
        for active_producer in client.request(request, 0).topics[0].partitions[0].active_producers
    }
    own_producer = active[producer.producer_id]
    result["producers"] = (
        own_producer.producer_epoch,
        own_producer.last_sequence,
        own_producer.current_txn_start_offset - offset,
        own_producer.coordinator_epoch,
    )
    for name, listing in {
        "all": ListTransactionsRequest(["Ongoing"]),
        "of nobody": ListTransactionsRequest([], [123_456_789]),
        "of one": ListTransactionsRequest([], [producer.producer_id]),
        "of both": ListTransactionsRequest(["Empty"], [producer.producer_id]),
        "strange states": ListTransactionsRequest(["Ongoing", "Strange", "ongoing"]),
        "dead": ListTransactionsRequest(["Dead", "PrepareEpochFence"]),
        "only a strange state": ListTransactionsRequest(["Strange"]),
        "longer than an hour": ListTransactionsRequest(["Ongoing"], duration_filter=3_600_000),
        "longer than nothing": ListTransactionsRequest(["Ongoing"], duration_filter=0),
        "by pattern": ListTransactionsRequest(transactional_id_pattern="adm.n"),
        "by part": ListTransactionsRequest(transactional_id_pattern="adm"),
        "by nothing": ListTransactionsRequest(["Ongoing"], transactional_id_pattern=""),
        "by no pattern": ListTransactionsRequest(transactional_id_pattern="(adm"),
    }.items():
        response = client.request(listing, 2)
        result[name] = (
            name_of(response.error_code),
            sorted(response.unknown_state_filters),
            sorted((e.transactional_id, e.transaction_state) for e in response.transaction_states),
        )
    producer.abort()
    result["aborted"] = _described(client, "admin")
    own_producer = {
        active_producer.producer_id: active_producer
        for active_producer in client.request(request, 0).topics[0].partitions[0].active_producers
    }[producer.producer_id]
    result["producers after"] = (
        own_producer.producer_epoch,
        own_producer.last_sequence,
        own_producer.current_txn_start_offset,
        own_producer.coordinator_epoch,
    )
    for name in ("", "nobody"):
        result[f"described {name!r}"] = _described(client, name)
    twice = client.request(DescribeTransactionsRequest(["admin", "nobody", "admin"]), 0)
    result["described twice"] = [
        (state.transactional_id, name_of(state.error_code)) for state in twice.transaction_states
    ]
    return result


def _described(client: WireClient, name: str) -> tuple[object, ...]:
    state = described(client, name)
    return (
        name_of(state.error_code),
        state.transactional_id,
        state.transaction_state,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms if state.transaction_start_time_ms <= 0 else "a time",
        state.producer_epoch,
        sorted((topic.topic, sorted(topic.partitions)) for topic in state.topics),
    )


def _markers(client: WireClient) -> Results:
    """WriteTxnMarkers of one who is no coordinator."""
    result: Results = {}
    producer = TxnProducer.started(client, "markers", Generation.V1)
    producer.init()
    producer.write(TOPIC, b"x")
    id_, epoch = producer.producer_id, producer.epoch

    def write(name: str, version: int, *markers: WritableTxnMarker) -> None:
        response = client.request(WriteTxnMarkersRequest(list(markers)), version)
        result[name] = [
            (topic.name, partition.partition_index, name_of(partition.error_code))
            for marker in response.markers
            for topic in marker.topics
            for partition in sorted(topic.partitions, key=lambda part: part.partition_index)
        ]

    everywhere = [
        WritableTxnMarkerTopic(TOPIC, [0, 9]),
        WritableTxnMarkerTopic("nowhere", [0]),
        WritableTxnMarkerTopic(TOPIC, [1]),
    ]
    here = [WritableTxnMarkerTopic(TOPIC, [0])]
    write("none", 1)
    write("an old epoch", 1, WritableTxnMarker(id_, epoch - 1, False, here, 0))
    write("many places", 1, WritableTxnMarker(id_, epoch, False, everywhere, 5))
    write("again", 1, WritableTxnMarker(id_, epoch, False, here, 5))
    write("an older coordinator", 1, WritableTxnMarker(id_, epoch, False, here, 4))
    write("of version 2", 2, WritableTxnMarker(id_, epoch, False, here, 5, 2))
    write("of version 2, later", 2, WritableTxnMarker(id_, epoch + 1, False, here, 5, 2))
    nowhere = [WritableTxnMarkerTopic("nowhere", [0])]
    write("nowhere", 1, WritableTxnMarker(id_, epoch, False, nowhere, 5))
    groups = [WritableTxnMarkerTopic("__consumer_offsets", [0, 99])]
    write("of groups", 1, WritableTxnMarker(id_ + 10**7, epoch, True, groups, 5))
    two = [WritableTxnMarker(id_ + offset, epoch + 1, True, here, 5) for offset in (0, 10**6)]
    write("of two", 1, *two)
    data = fetched_committed(client, TOPIC)
    result["stable"] = data.last_stable_offset == data.high_watermark
    return result


def _adding(client: WireClient) -> Results:
    """AddPartitionsToTxn and AddOffsetsToTxn requests that do not match the state."""
    result: Results = {}
    producer = TxnProducer.started(client, "adding", Generation.V1)
    id_, epoch = producer.producer_id, producer.epoch
    good = [AddPartitionsToTxnTopic(TOPIC, [0, 1])]
    mixed = [
        AddPartitionsToTxnTopic(TOPIC, [0, 9]),
        AddPartitionsToTxnTopic("nowhere", [0]),
        AddPartitionsToTxnTopic("__consumer_offsets", [0]),
    ]
    cases: dict[str, tuple[str, int, int, list[AddPartitionsToTxnTopic]]] = {
        "mixed": ("adding", id_, epoch, mixed),
        "no id": ("", id_, epoch, good),
        "unknown": ("nobody", id_, epoch, good),
        "another's": ("adding", id_ + 1, epoch, good),
        "later epoch": ("adding", id_, epoch + 1, good),
        "nothing": ("adding", id_, epoch, []),
        "good": ("adding", id_, epoch, good),
        "good again": ("adding", id_, epoch, good),
    }
    for version in range(4):
        for name, (transactional_id, its_id, its_epoch, topics) in cases.items():
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=its_id,
                v3_and_below_producer_epoch=its_epoch,
                v3_and_below_topics=topics,
            )
            response = client.request(request, version)
            result[f"{name}, {version}"] = _results(response.results_by_topic_v3_and_below)
    for version in (4, 5):
        for verify_only in (True, False):
            for name, (transactional_id, its_id, its_epoch, topics) in cases.items():
                transaction = AddPartitionsToTxnTransaction(
                    transactional_id, its_id, its_epoch, verify_only, topics
                )
                response = client.request(AddPartitionsToTxnRequest([transaction]), version)
                result[f"{name}, {version}, {verify_only}"] = _transactions(response)
    several = [
        AddPartitionsToTxnTransaction("adding", id_, epoch, True, good),
        AddPartitionsToTxnTransaction(
            "adding-too", id_, epoch, True, [AddPartitionsToTxnTopic(TOPIC, [2])]
        ),
    ]
    result["several"] = _transactions(client.request(AddPartitionsToTxnRequest(several), 5))
    unwritten = [
        AddPartitionsToTxnTransaction(
            "adding", id_, epoch, True, [AddPartitionsToTxnTopic(TOPIC, [0, 2])]
        )
    ]
    result["not in it"] = _transactions(client.request(AddPartitionsToTxnRequest(unwritten), 5))
    for version in range(5):
        for name, (transactional_id, its_id, its_epoch, _) in cases.items():
            offsets = AddOffsetsToTxnRequest(transactional_id, its_id, its_epoch, "group")
            code = client.request(offsets, version).error_code
            result[f"offsets, {name}, {version}"] = name_of(code)
    producer.commit()
    return result


def _results(topics: Any) -> list[tuple[str, int, str]]:
    return sorted(
        (topic.name, partition.partition_index, name_of(partition.partition_error_code))
        for topic in topics
        for partition in topic.results_by_partition
    )


def _transactions(response: Any) -> tuple[object, ...]:
    return (
        name_of(response.error_code),
        sorted(
            (transaction.transactional_id, _results(transaction.topic_results))
            for transaction in response.results_by_transaction
        ),
    )


def _fencing(client: WireClient) -> Results:
    """Responses to a producer that was fenced by another one."""
    result: Results = {}
    for generation in Generation:
        name = f"fencing-{generation.name}"
        old = TxnProducer.started(client, name, generation)
        old.write(TOPIC, b"x", partition=1)
        new = TxnProducer(client, name, generation)
        first = client.request(InitProducerIdRequest(name, 60_000), new.versions.init)
        result[f"{name}, first"] = (name_of(first.error_code), first.producer_epoch)
        response = new.init()
        result[f"{name}, then"] = (
            name_of(response.error_code),
            response.producer_epoch,
            response.producer_id == old.producer_id,
        )
        for version in range(6):
            end = client.request(old.end_request(commit=True), version)
            result[f"{name}, end, {version}"] = (name_of(end.error_code), end.producer_epoch)
        for version in (3, 11, 12):
            batch = old.batch(TOPIC, b"y", partition=1)
            produce = produce_request(name, {(TOPIC, 1): batch})
            result[f"{name}, produce, {version}"] = [
                (outcome[0], outcome[1])
                for outcome in _produce_results(client.request(produce, version))
            ]
        for version in (3, 4, 5):
            request = InitProducerIdRequest(name, 60_000, old.producer_id, old.epoch)
            again = client.request(request, version)
            result[f"{name}, init, {version}"] = (name_of(again.error_code), again.producer_epoch)
        new.init(keep=True)
        result[f"{name}, bumped"] = new.epoch
        new.write(TOPIC, b"z", partition=1)
        bumped = new.init(keep=True)
        result[f"{name}, in a transaction"] = (name_of(bumped.error_code), bumped.producer_epoch)
        result[f"{name}, in the end"] = _described(client, name)
    return result
