"""Read, transform, write, with a broker that is killed again and again (P4, S7).

A seed says where: after how many transactions, and at which request, before the
broker has it, while it works on it, or after it has answered. A failure names the seed and the
moments.
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
"""In every transaction, so that none is waited for in vain."""
JAVA_RECORDS = 600
IN_ONE_JAVA_TRANSACTION = 20
JAVA_ASKS = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.JOIN_GROUP,
    ApiKey.PRODUCE,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)
seeds = pytest.mark.parametrize("seed", range(max(SEEDS, 1)))


class ReturningBroker(PenstockBroker):
    """A broker that comes back where it was."""

    def settle(self) -> None:
        """Starts at the port that it has now from now on."""
        self._settings["listeners"] = f"PLAINTEXT://{self.bootstrap}"

    def name_itself(self, address: str) -> None:
        """Sends clients there, from its next start on."""
        self._settings["advertised.listeners"] = f"PLAINTEXT://{address}"

    def crash(self) -> None:
        self.kill()
        self.check()
        self.start()

    def check(self) -> None:
        """It has met nothing that it did not expect since its last start."""
        assert "Traceback" not in self.log.read_text()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ReturningBroker]:
    broker = ReturningBroker(tmp_path, SETTINGS)
    with broker:
        broker.settle()
        yield broker
    broker.check()


@pytest.fixture
def tap(broker: ReturningBroker) -> Iterator[Tap]:
    """The only way to the broker that clients know of."""
    with Tap(broker.bootstrap) as tap:
        broker.stop()
        broker.name_itself(tap.bootstrap)
        broker.start()
        yield tap
        # It was started on a thread of the tap, and would end with that.
        broker.stop()


class Kills:
    """The moments at which the broker is killed, which follow from a seed."""

    def __init__(
        self,
        seed: str,
        transactions: int,
        asked: Sequence[ApiKey],
        tap: Tap,
        broker: ReturningBroker,
    ) -> None:
        rng = Random(seed)
        after = sorted(rng.sample(range(1, transactions - KILLS), KILLS))
        keys = [ApiKey.END_TXN, *rng.choices(asked, k=KILLS - 1)]
        rng.shuffle(keys)
        stages = [rng.choice(list(Stage)) for _ in keys]
        self._left = list(zip(after, map(Moment, keys, stages), strict=True))
        self._tap = tap
        self._broker = broker
        self.plan = f"seed {seed!r}: {self._left}"

    def arm(self, transactions: int) -> None:
        """So many transactions are done: the next kill may be due."""
        if not self._tap.check() and self._left and self._left[0][0] <= transactions:
            _, moment = self._left.pop(0)
            self._tap.at(moment, self._broker.crash)

    def all_done(self) -> bool:
        return not self._tap.check() and not self._left


def fill(bootstrap: str, count: int) -> dict[int, list[bytes]]:
    """Makes the topics and gives back what is in the source, by partition."""
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


def asked(bootstrap: str, request: Message, version: int) -> Any:
    """The answer of a broker that may just have been killed, once it has read about the group."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        with suppress(ConnectionError), connect(bootstrap) as client:
            response = client.request(request, version)
            is_described = isinstance(response, DescribeGroupsResponse)
            code = (response.groups[0] if is_described else response).error_code
            if code == ErrorCode.NONE:
                return response
            assert code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, response
        assert time.monotonic() < deadline, "the broker does not answer"
        time.sleep(0.01)


def offsets(bootstrap: str) -> list[int]:
    """What the group has committed, in whatever state a transaction is."""
    wanted = OffsetFetchRequestTopic(SOURCE, list(PARTITIONS))
    response = asked(bootstrap, OffsetFetchRequest(GROUP, [wanted]), 7)
    return [max(partition.committed_offset, 0) for partition in response.topics[0].partitions]


def remove_members(bootstrap: str) -> None:
    """Of the group: a member that closes before it has found the broker again does not leave."""
    (group,) = asked(bootstrap, DescribeGroupsRequest([GROUP]), 5).groups
    gone = [MemberIdentity(member.member_id) for member in group.members]
    asked(bootstrap, LeaveGroupRequest(GROUP, members=gone), 4)


def everything(bootstrap: str) -> dict[int, list[bytes]]:
    """What a consumer with read_committed finds in the target, up to the end."""
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
def told(kills: Kills) -> Iterator[None]:
    """A failure says where the broker was killed."""
    try:
        yield
    except BaseException as error:
        error.add_note(kills.plan)
        raise


@seeds
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kills_while_librdkafka_copies(
    tap: Tap, broker: ReturningBroker, protocol: str, seed: int
) -> None:
    """P4, C3: whichever protocol the group has, every record is copied once, in order."""
    source = fill(tap.bootstrap, RECORDS)
    transactions = RECORDS // IN_ONE_TRANSACTION
    kills = Kills(f"{protocol} {seed}", transactions, LIBRDKAFKA_ASKS, tap, broker)
    settings = {"group.protocol": protocol}
    with told(kills), closing(Copier(tap.bootstrap, GROUP, SOURCE, TARGET, settings)) as copier:
        while copier.copied < RECORDS:
            kills.arm(copier.committed)
            if messages := copier.read(IN_ONE_TRANSACTION):
                copier.copy(messages)
        assert kills.all_done()
        check(tap.bootstrap, source)


@seeds
def test_kills_while_java_copies(tap: Tap, broker: ReturningBroker, seed: int) -> None:
    """P4: with a new producer and a new member of the group for each transaction."""
    source = fill(tap.bootstrap, JAVA_RECORDS)
    # Two polls may bring up to twice as many as were asked for.
    transactions = JAVA_RECORDS // IN_ONE_JAVA_TRANSACTION // 2
    kills = Kills(f"Java {seed}", transactions, JAVA_ASKS, tap, broker)
    with told(kills), TRANSACTIONAL[JAVA[-1]]() as java:
        left, done = JAVA_RECORDS, 0
        while left:
            kills.arm(done)
            most = min(left, IN_ONE_JAVA_TRANSACTION)
            # Whether it came to its end or not, the offsets say.
            with suppress(ClientError):
                java.transform(tap.bootstrap, GROUP, SOURCE, TARGET, most, commit=True)
                done += 1
            left = JAVA_RECORDS - sum(offsets(tap.bootstrap))
            remove_members(tap.bootstrap)
        assert kills.all_done()
        check(tap.bootstrap, source)
