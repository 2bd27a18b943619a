"""Consume-transform-produce loops with a broker that is killed repeatedly (P4, S7).

A seed determines when: after how many transactions, at which request, and whether before the broker
receives the request, while it handles it, or after it has responded. A failure message contains the
seed and these moments.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from penstock.core.errors import ErrorCode
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Message
from penstock.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.crash.harness import SEEDS
from tests.support.broker.in_process import WireClient
from tests.support.broker.process import PenstockBroker
from tests.support.coordinator.transaction_client import latest
from tests.support.kafka_clients.confluent_client import TIMEOUT, ConfluentClient, make_consumer
from tests.support.kafka_clients.copying import Copier
from tests.support.kafka_clients.model import ClientError, Record
from tests.support.kafka_clients.tap import Moment, Stage, Tap
from tests.support.kafka_clients.transactional import COPY
from tests.support.kafka_clients.transactional_clients import JAVA, TRANSACTIONAL

pytestmark = pytest.mark.long


PARTITIONS = range(3)
RECORDS = 3000
IN_ONE_TRANSACTION = 50
KILLS = 5
SOURCE, TARGET, GROUP = "source", "target", "group"
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}
LIBRDKAFKA_ASKS = (
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.PRODUCE,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)
"""Requests that every transaction sends, so that each planned kill happens."""
JAVA_RECORDS = 600
IN_ONE_JAVA_TRANSACTION = 20
JAVA_REQUESTS = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.JOIN_GROUP,
    ApiKey.PRODUCE,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)
seeds = pytest.mark.parametrize("seed", range(max(SEEDS, 1)))


class RestartingBroker(PenstockBroker):
    """A broker that restarts on the same port."""

    def keep_port(self) -> None:
        """Keeps the current port for all later starts."""
        self._settings["listeners"] = f"PLAINTEXT://{self.bootstrap}"

    def advertise(self, address: str) -> None:
        """Advertises this address to clients from its next start on."""
        self._settings["advertised.listeners"] = f"PLAINTEXT://{address}"

    def crash(self) -> None:
        self.kill()
        self.check()
        self.start()

    def check(self) -> None:
        """Checks that the broker has logged no traceback since its last start."""
        assert "Traceback" not in self.log.read_text()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RestartingBroker]:
    broker = RestartingBroker(tmp_path, SETTINGS)
    with broker:
        broker.keep_port()
        yield broker
    broker.check()


@pytest.fixture
def tap(broker: RestartingBroker) -> Iterator[Tap]:
    """The proxy in front of the broker; its address is the only one that clients get."""
    with Tap(broker.bootstrap) as tap:
        broker.stop()
        broker.advertise(tap.bootstrap)
        broker.start()
        yield tap
        # The broker was restarted on a thread of the tap, and would end with that thread.
        broker.stop()


class Kills:
    """The moments at which the broker is killed, derived from a seed."""

    def __init__(
        self,
        seed: str,
        transactions: int,
        api_keys: Sequence[ApiKey],
        tap: Tap,
        broker: RestartingBroker,
    ) -> None:
        rng = Random(seed)
        after = sorted(rng.sample(range(1, transactions - KILLS), KILLS))
        keys = [ApiKey.END_TXN, *rng.choices(api_keys, k=KILLS - 1)]
        rng.shuffle(keys)
        stages = [rng.choice(list(Stage)) for _ in keys]
        self._remaining = list(zip(after, map(Moment, keys, stages), strict=True))
        self._tap = tap
        self._broker = broker
        self.plan = f"seed {seed!r}: {self._remaining}"

    def arm(self, transactions: int) -> None:
        """Arms the next kill if it is due after this number of completed transactions."""
        if not self._tap.check() and self._remaining and self._remaining[0][0] <= transactions:
            _, moment = self._remaining.pop(0)
            self._tap.at(moment, self._broker.crash)

    def all_done(self) -> bool:
        return not self._tap.check() and not self._remaining


def fill(bootstrap: str, count: int) -> dict[int, list[bytes]]:
    """Creates the topics, fills the source and returns its values by partition."""
    client = ConfluentClient()
    for topic in (SOURCE, TARGET):
        client.create_topic(bootstrap, topic, len(PARTITIONS), {})
    numbers = {item: range(item, count, len(PARTITIONS)) for item in PARTITIONS}
    client.produce(
        bootstrap,
        SOURCE,
        [
            Record(None, b"%d" % number, partition=partition)
            for partition, result in numbers.items()
            for number in result
        ],
        idempotent=True,
    )
    return {item: [b"%d" % number for number in result] for item, result in numbers.items()}


def connect(bootstrap: str) -> WireClient:
    host, _, port = bootstrap.rpartition(":")
    return WireClient((host, int(port)))


def request_until_loaded(bootstrap: str, request: Message, version: int) -> Any:
    """Returns the response of a broker that may be restarting or loading the group."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        with suppress(ConnectionError), connect(bootstrap) as client:
            response = client.request(request, version)
            is_described = isinstance(response, DescribeGroupsResponse)
            code = (response.groups[0] if is_described else response).error_code
            if code == ErrorCode.NONE:
                return response
            assert code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, response
        assert time.monotonic() < deadline, "the broker does not respond"
        time.sleep(0.01)


def offsets(bootstrap: str) -> list[int]:
    """Returns the group's committed offsets, ignoring pending transactions."""
    source_partitions = OffsetFetchRequestTopic(SOURCE, list(PARTITIONS))
    response = request_until_loaded(bootstrap, OffsetFetchRequest(GROUP, [source_partitions]), 7)
    return [max(partition.committed_offset, 0) for partition in response.topics[0].partitions]


def remove_members(bootstrap: str) -> None:
    """Removes the group's members: one that closes without a connection sends no LeaveGroup."""
    (group,) = request_until_loaded(bootstrap, DescribeGroupsRequest([GROUP]), 5).groups
    members = [MemberIdentity(member.member_id) for member in group.members]
    request_until_loaded(bootstrap, LeaveGroupRequest(GROUP, members=members), 4)


def everything(bootstrap: str) -> dict[int, list[bytes]]:
    """Returns all records of the target that a read_committed consumer reads."""
    result: dict[int, list[bytes]] = {item: [] for item in PARTITIONS}
    settings = {"isolation.level": "read_committed", "enable.partition.eof": True}
    with closing(make_consumer(bootstrap, "without-a-group", settings)) as consumer:
        consumer.list_topics(TARGET, timeout=TIMEOUT)
        consumer.assign([TopicPartition(TARGET, item, OFFSET_BEGINNING) for item in PARTITIONS])
        open_partitions = set(PARTITIONS)
        while open_partitions:
            message = consumer.poll(TIMEOUT)
            assert message is not None, f"{open_partitions} have no end"
            partition = message.partition()
            assert partition is not None
            if (error := message.error()) is None:
                result[partition].append(message.value() or b"")
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                open_partitions.discard(partition)
    return result


def check(bootstrap: str, source: dict[int, list[bytes]]) -> None:
    assert everything(bootstrap) == {
        item: [COPY + value for value in values] for item, values in source.items()
    }
    with connect(bootstrap) as client:
        for entry in PARTITIONS:
            ends = [latest(client, TARGET, isolation, entry) for isolation in (0, 1)]
            assert ends[0] == ends[1], "a transaction is still open"
    committed = ConfluentClient().committed(bootstrap, SOURCE, GROUP, len(PARTITIONS))
    assert committed == {item: len(values) for item, values in source.items()}


@contextmanager
def plan_in_failures(kills: Kills) -> Iterator[None]:
    """Adds the planned kills to the message of a failure."""
    try:
        yield
    except BaseException as error:
        error.add_note(kills.plan)
        raise


@seeds
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafka_copies_each_record_once_despite_broker_kills(
    tap: Tap, broker: RestartingBroker, protocol: str, seed: int
) -> None:
    """P4, C3: with both group protocols, every record is copied once, in order."""
    source = fill(tap.bootstrap, RECORDS)
    transactions = RECORDS // IN_ONE_TRANSACTION
    kills = Kills(f"{protocol} {seed}", transactions, LIBRDKAFKA_ASKS, tap, broker)
    settings = {"group.protocol": protocol}
    with (
        plan_in_failures(kills),
        closing(Copier(tap.bootstrap, GROUP, SOURCE, TARGET, settings)) as copier,
    ):
        while copier.copied < RECORDS:
            kills.arm(copier.committed)
            if messages := copier.read(IN_ONE_TRANSACTION):
                copier.copy(messages)
        assert kills.all_done()
        check(tap.bootstrap, source)


@seeds
def test_java_copies_each_record_once_despite_broker_kills(
    tap: Tap, broker: RestartingBroker, seed: int
) -> None:
    """P4: with a new producer and a new member of the group for each transaction."""
    source = fill(tap.bootstrap, JAVA_RECORDS)
    # Two polls may return up to twice the requested number of records.
    transactions = JAVA_RECORDS // IN_ONE_JAVA_TRANSACTION // 2
    kills = Kills(f"Java {seed}", transactions, JAVA_REQUESTS, tap, broker)
    with plan_in_failures(kills), TRANSACTIONAL[JAVA[-1]]() as java:
        remaining_records, completed = JAVA_RECORDS, 0
        while remaining_records:
            kills.arm(completed)
            most = min(remaining_records, IN_ONE_JAVA_TRANSACTION)
            # The committed offsets show whether the transaction completed.
            with suppress(ClientError):
                java.transform(tap.bootstrap, GROUP, SOURCE, TARGET, most, commit=True)
                completed += 1
            remaining_records = JAVA_RECORDS - sum(offsets(tap.bootstrap))
            remove_members(tap.bootstrap)
        assert kills.all_done()
        check(tap.bootstrap, source)
