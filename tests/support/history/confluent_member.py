"""A member of a group with librdkafka's consumer, in a process of its own.

`python -m tests.support.history.confluent_member BOOTSTRAP GROUP` prints its events as lines of
JSON with the monotonic time, and leaves the group when standard input is closed. In the process of
the test it could stop all threads: confluent-kafka may wait for librdkafka in a rebalance callback
without releasing the interpreter lock.
"""

import json
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.history.producers import LIBRDKAFKA_SETTINGS
from tests.support.history.workers import PLAIN, TRANSACTIONAL

SESSION_TIMEOUT_MS = 6000
HEARTBEAT_INTERVAL_MS = 500
_COMMIT_INTERVAL_S = 0.7


class Member:
    """Reads, prints, and commits what it has printed."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._positions: dict[tuple[str, int], int] = {}
        self._consumer = Consumer(
            {
                **LIBRDKAFKA_SETTINGS,
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
            }
        )

    def run(self, stopping: threading.Event) -> None:
        self._consumer.subscribe(
            [PLAIN, TRANSACTIONAL],
            on_assign=lambda consumer, partitions: self._assign(partitions),
            on_revoke=lambda consumer, partitions: self._revoke(partitions),
            on_lost=lambda consumer, partitions: self._release(partitions),
        )
        next_commit = time.monotonic() + _COMMIT_INTERVAL_S
        while not stopping.is_set():
            for message in self._consumer.consume(100, 0.2):
                error = message.error()
                if error is not None:
                    _print("note", repr(error))
                    continue
                topic, partition = message.topic() or "", message.partition() or 0
                offset = message.offset() or 0
                value = (message.value() or b"").rstrip()
                _print("read", topic, partition, offset, value.decode())
                self._positions[topic, partition] = offset + 1
            if time.monotonic() >= next_commit:
                self._commit()
                next_commit = time.monotonic() + _COMMIT_INTERVAL_S
        self._commit()
        self._consumer.close()

    def _assign(self, partitions: list[TopicPartition]) -> None:
        self._release(partitions)
        _print("assigned", *((partition.topic, partition.partition) for partition in partitions))

    def _revoke(self, partitions: list[TopicPartition]) -> None:
        self._commit()
        self._release(partitions)

    def _release(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self._positions.pop((partition.topic, partition.partition), None)

    def _commit(self) -> None:
        offsets = [(*key, offset) for key, offset in self._positions.items()]
        if not offsets:
            return
        try:
            results = self._consumer.commit(
                offsets=[TopicPartition(*position) for position in offsets], asynchronous=False
            )
        except KafkaException as error:
            _print("note", repr(error))
            return
        if all(result.error is None for result in results or ()):
            _print("committed", *offsets)


def _print(*fields: object) -> None:
    sys.stdout.write(json.dumps([time.monotonic(), *fields]) + "\n")
    sys.stdout.flush()


def main(bootstrap: str, group: str) -> None:
    stopping = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        stopping.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    Member(bootstrap, group).run(stopping)


if __name__ == "__main__":
    main(*sys.argv[1:])
