"""Read, transform, write, with a broker that is killed again and again (P4, S7).

Where exactly it is killed a seed says: after how many transactions, and at which request, before the
broker has it, while it works on it, or after it has answered. A failure names the seed and the
moments.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from penstock.protocol.api_key import ApiKey
from tests.support.clients.confluent_client import TIMEOUT, ConfluentClient, make_consumer
from tests.support.clients.copying import Copier
from tests.support.clients.model import Record
from tests.support.clients.tap import Moment, Stage, Tap
from tests.support.clients.transactional import COPY
from tests.support.penstock_broker import PenstockBroker

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
    ApiKey.FETCH,
)


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
        self.start()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ReturningBroker]:
    broker = ReturningBroker(tmp_path, SETTINGS)
    with broker:
        broker.settle()
        yield broker
    assert "Traceback" not in broker.log.read_text()


@pytest.fixture
def tap(broker: ReturningBroker) -> Iterator[Tap]:
    """The only way to the broker that clients know of."""
    with Tap(broker.bootstrap) as tap:
        broker.stop()
        broker.name_itself(tap.bootstrap)
        broker.start()
        yield tap


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
    numbers = {each: range(each, count, len(PARTITIONS)) for each in PARTITIONS}
    client.produce(
        bootstrap,
        SOURCE,
        [
            Record(None, b"%d" % number, partition=partition)
            for partition, found in numbers.items()
            for number in found
        ],
        idempotent=True,
    )
    return {each: [b"%d" % number for number in found] for each, found in numbers.items()}


def everything(bootstrap: str) -> dict[int, list[bytes]]:
    """What a consumer with read_committed finds in the target, up to the end."""
    found: dict[int, list[bytes]] = {each: [] for each in PARTITIONS}
    settings = {"isolation.level": "read_committed", "enable.partition.eof": True}
    with closing(make_consumer(bootstrap, "without-a-group", settings)) as consumer:
        consumer.list_topics(TARGET, timeout=TIMEOUT)
        consumer.assign([TopicPartition(TARGET, each, OFFSET_BEGINNING) for each in PARTITIONS])
        open_partitions = set(PARTITIONS)
        while open_partitions:
            message = consumer.poll(TIMEOUT)
            assert message is not None, f"{open_partitions} have no end"
            partition = message.partition()
            assert partition is not None
            if (error := message.error()) is None:
                found[partition].append(message.value() or b"")
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                open_partitions.discard(partition)
                _, end = consumer.get_watermark_offsets(TopicPartition(TARGET, partition))
                assert message.offset() == end, "an open transaction is in the way"
    return found


def check(bootstrap: str, source: dict[int, list[bytes]]) -> None:
    assert everything(bootstrap) == {
        each: [COPY + value for value in values] for each, values in source.items()
    }
    committed = ConfluentClient().committed(bootstrap, SOURCE, GROUP, len(PARTITIONS))
    assert committed == {each: len(values) for each, values in source.items()}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kills_while_librdkafka_copies(
    tap: Tap, broker: ReturningBroker, protocol: str
) -> None:
    """P4, C3: whichever protocol the group has, every record is copied once, in order."""
    source = fill(tap.bootstrap, RECORDS)
    transactions = RECORDS // IN_ONE_TRANSACTION
    kills = Kills(protocol, transactions, LIBRDKAFKA_ASKS, tap, broker)
    settings = {"group.protocol": protocol}
    with closing(Copier(tap.bootstrap, GROUP, SOURCE, TARGET, settings)) as copier:
        try:
            while True:
                kills.arm(copier.committed)
                messages = copier.read(IN_ONE_TRANSACTION)
                if messages:
                    copier.copy(messages)
                elif kills.all_done() and copier.is_at_the_end():
                    break
        except BaseException as error:
            error.add_note(kills.plan)
            raise
    check(tap.bootstrap, source)
