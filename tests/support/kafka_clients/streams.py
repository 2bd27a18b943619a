"""Clients that send and read in the background, while brokers end and return.

A stream is an idempotent producer that sends the numbers 0, 1, … to every partition of a topic, and
a member of a group that reads them. The jobs of programs (see `program`) have a `handle`:
stream_start (with `group`, `interval_ms`, the number of partitions as `count`, and `settings` of
the Java consumer), stream_progress (responds with `acknowledged` and `positions`, a number for each
partition) and stream_end (responds with `sent` and `read`, as in `Outcome`).
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as ConfluentProducer

from tests.support.kafka_clients.program import (
    ProgramClient,
    franz_go,
    java_client,
    java_versions,
    kafkajs,
)

PARTITIONS = 3
INTERVAL_S = 0.1
END_SECONDS = 60.0


class Progress(NamedTuple):
    """A number for each partition."""

    acknowledged: list[int]
    """The records that were acknowledged."""
    positions: list[int]
    """The offset after the last record that was read."""


class Outcome(NamedTuple):
    """What a stream has done; a list for each partition."""

    sent: list[list[int]]
    """The offset of each number, -1 if it was not acknowledged."""
    read: list[list[tuple[int, int]]]
    """Offset and number of each record, in the order in which they were read."""


class Stream(ABC):
    name: str

    @abstractmethod
    def start(self, bootstrap: str, topic: str, group: str) -> None: ...

    @abstractmethod
    def progress(self) -> Progress:
        """Raises an error that the client reported to its application."""

    @abstractmethod
    def end(self) -> Outcome:
        """Stops sending, and reading when everything has been read and committed."""

    def close(self) -> None:
        """Ends everything that runs, after a failure too."""
        return


class ProgramStream(Stream):
    """A stream of a client in another language."""

    def __init__(self, program: ProgramClient, settings: Mapping[str, str] | None = None) -> None:
        self._program = program
        self._settings = settings or {}
        self.name = program.name

    def start(self, bootstrap: str, topic: str, group: str) -> None:
        self._program.do(
            bootstrap,
            topic,
            "stream_start",
            handle=topic,
            group=group,
            count=PARTITIONS,
            interval_ms=int(INTERVAL_S * 1000),
            settings=self._settings,
        )
        self._topic = topic

    def progress(self) -> Progress:
        response = self._program.do("", "", "stream_progress", handle=self._topic)
        return Progress(response["acknowledged"], response["positions"])

    def end(self) -> Outcome:
        response = self._program.do("", "", "stream_end", END_SECONDS, handle=self._topic)
        read = [[(offset, number) for offset, number in pairs] for pairs in response["read"]]
        return Outcome(response["sent"], read)

    def close(self) -> None:
        self._program.close()


class ThreadStream(Stream):
    """A stream of threads in the test's process, which record what they do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self._read: list[list[tuple[int, int]]] = [[] for _ in range(PARTITIONS)]
        self._acknowledged = [0] * PARTITIONS
        self._failure: BaseException | None = None
        self._threads: list[threading.Thread] = []
        self.stop_sending = threading.Event()
        self.stop_reading = threading.Event()

    @abstractmethod
    def send(self, bootstrap: str, topic: str) -> None:
        """Sends until `stop_sending`, then waits for all acknowledgements."""

    @abstractmethod
    def read(self, bootstrap: str, topic: str, group: str) -> None:
        """Reads until `stop_reading`, then commits."""

    def interrupt_reading(self) -> None:
        """Is called after `stop_reading` has been set."""
        return

    def start(self, bootstrap: str, topic: str, group: str) -> None:
        self._threads = [
            threading.Thread(target=self._run, args=(work,), daemon=True)
            for work in (
                lambda: self.send(bootstrap, topic),
                lambda: self.read(bootstrap, topic, group),
            )
        ]
        for thread in self._threads:
            thread.start()

    def progress(self) -> Progress:
        self._check()
        with self._lock:
            positions = [records[-1][0] + 1 if records else 0 for records in self._read]
            return Progress(list(self._acknowledged), positions)

    def end(self) -> Outcome:
        sending, reading = self._threads
        self.stop_sending.set()
        sending.join(END_SECONDS)
        assert not sending.is_alive(), f"{self.name} still sends"
        counts = [len(offsets) for offsets in self._sent]
        for _ in range(int(END_SECONDS / 0.02)):
            if all(map(int.__ge__, self.progress().positions, counts)):
                break
            self.stop_reading.wait(0.02)
        self.stop_reading.set()
        self.interrupt_reading()
        reading.join(END_SECONDS)
        assert not reading.is_alive(), f"{self.name} still reads"
        self._check()
        return Outcome(self._sent, self._read)

    def close(self) -> None:
        self.stop_sending.set()
        self.stop_reading.set()
        self.interrupt_reading()
        for thread in self._threads:
            thread.join(END_SECONDS)

    # --- records of the threads

    def expect(self, partition: int) -> int:
        """Returns the next number for a partition, which is not acknowledged yet."""
        with self._lock:
            self._sent[partition].append(-1)
            return len(self._sent[partition]) - 1

    def acknowledge(self, partition: int, number: int, offset: int) -> None:
        with self._lock:
            self._sent[partition][number] = offset
            self._acknowledged[partition] += 1

    def receive(self, partition: int, offset: int, value: bytes | str) -> None:
        with self._lock:
            self._read[partition].append((offset, int(value)))

    def fail(self, error: BaseException) -> None:
        self._failure = error

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised by the test's own thread
            self.fail(error)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure


class ConfluentStream(ThreadStream):
    """librdkafka."""

    def __init__(self, protocol: str) -> None:
        super().__init__()
        self._protocol = protocol
        self.name = f"confluent-kafka-{protocol}"

    def send(self, bootstrap: str, topic: str) -> None:
        producer = ConfluentProducer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "error_cb": self._on_error,
                "log_level": 2,
            }
        )
        while not self.stop_sending.wait(INTERVAL_S):
            for partition in range(PARTITIONS):
                number = self.expect(partition)

                def delivered(
                    error: KafkaError | None, message: Message, number: int = number
                ) -> None:
                    if error is not None:
                        self.fail(KafkaException(error))
                    else:
                        partition, offset = message.partition(), message.offset()
                        self.acknowledge(cast(int, partition), number, cast(int, offset))

                producer.produce(
                    topic, str(number).encode(), partition=partition, on_delivery=delivered
                )
            producer.poll(0)
        assert producer.flush(END_SECONDS) == 0

    def read(self, bootstrap: str, topic: str, group: str) -> None:
        consumer = ConfluentConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": self._protocol,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 1000,
                "fetch.wait.max.ms": 100,
                "error_cb": self._on_error,
                "log_level": 2,
            }
        )
        consumer.subscribe([topic])
        while not self.stop_reading.is_set():
            message = consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None and offset is not None and value is not None  # noqa: PT018
            self.receive(partition, offset, value)
        consumer.close()

    def _on_error(self, error: KafkaError) -> None:
        """Lost connections are reported too; only a fatal error ends the client."""
        if error.fatal():
            self.fail(KafkaException(error))


def foreign_streams() -> dict[str, Callable[[], Stream]]:
    """Returns the streams of other clients than ours by their names."""
    old, *_, new = java_versions()
    return {
        "librdkafka-classic": lambda: ConfluentStream("classic"),
        "librdkafka-consumer": lambda: ConfluentStream("consumer"),
        f"java-{old}-classic": lambda: ProgramStream(java_client(old)()),
        f"java-{new}-consumer": lambda: ProgramStream(
            java_client(new)(), {"group.protocol": "consumer"}
        ),
        "franz-go": lambda: ProgramStream(franz_go()),
        "kafkajs": lambda: ProgramStream(kafkajs()),
    }
