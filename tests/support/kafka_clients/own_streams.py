"""Streams (see `streams`) of our own clients and of the command line."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from penstock.client import Consumer, Producer, aio
from penstock.client.producer.future import RecordFuture
from penstock.client.settings import ConsumerOptions, ProducerOptions
from tests.support.kafka_clients.streams import (
    END_SECONDS,
    INTERVAL_S,
    PARTITIONS,
    Progress,
    Stream,
    ThreadStream,
)


def _producer_options(bootstrap: str) -> ProducerOptions:
    return {"bootstrap_servers": bootstrap, "acks": "all", "linger_ms": 1}


def _consumer_options(bootstrap: str, group: str, protocol: str) -> ConsumerOptions:
    return {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 1000,
        "fetch_max_wait_ms": 100,
    }


class BlockingStream(ThreadStream):
    """The blocking clients."""

    name = "penstock"

    def send(self, bootstrap: str, topic: str) -> None:
        with Producer(**_producer_options(bootstrap)) as producer:
            while not self.stop_sending.wait(INTERVAL_S):
                for partition in range(PARTITIONS):
                    number = self.expect(partition)

                    def delivered(
                        future: RecordFuture, partition: int = partition, number: int = number
                    ) -> None:
                        error = future.exception()
                        if error is not None:
                            self.fail(error)
                        else:
                            self.acknowledge(partition, number, future.result().offset)

                    value = str(number).encode()
                    producer.send(topic, value, partition=partition).add_done_callback(delivered)
            producer.flush(END_SECONDS)

    def read(self, bootstrap: str, topic: str, group: str) -> None:
        with Consumer(**_consumer_options(bootstrap, group, "classic")) as consumer:
            consumer.subscribe([topic])
            while not self.stop_reading.is_set():
                for record in consumer.poll(0.1):
                    self.receive(record.partition, record.offset, record.value or b"")


class AsyncioStream(ThreadStream):
    """The asyncio clients; each of the two has a loop of its own."""

    name = "penstock-aio"

    def send(self, bootstrap: str, topic: str) -> None:
        asyncio.run(self._send(bootstrap, topic))

    def read(self, bootstrap: str, topic: str, group: str) -> None:
        asyncio.run(self._read_records(bootstrap, topic, group))

    async def _send(self, bootstrap: str, topic: str) -> None:
        async with (
            aio.Producer(**_producer_options(bootstrap)) as producer,
            asyncio.TaskGroup() as tasks,
        ):
            while not self.stop_sending.is_set():
                await asyncio.sleep(INTERVAL_S)
                for partition in range(PARTITIONS):
                    number = self.expect(partition)
                    value = str(number).encode()
                    future = await producer.send(topic, value, partition=partition)
                    tasks.create_task(self._wait_for(future, partition, number))

    async def _wait_for(self, future: RecordFuture, partition: int, number: int) -> None:
        self.acknowledge(partition, number, (await future).offset)

    async def _read_records(self, bootstrap: str, topic: str, group: str) -> None:
        async with aio.Consumer(**_consumer_options(bootstrap, group, "consumer")) as consumer:
            consumer.subscribe([topic])
            while not self.stop_reading.is_set():
                for record in await consumer.poll(0.1):
                    self.receive(record.partition, record.offset, record.value or b"")


class CommandStream(ThreadStream):
    """`penstock produce` and `penstock consume`, each one process from the start to the end.

    The command prints the number of acknowledged records at its end, and no offsets.
    """

    name = "penstock-command"
    _reader: "subprocess.Popen[str] | None" = None

    def progress(self) -> Progress:
        positions = super().progress().positions
        return Progress(positions, positions)

    def interrupt_reading(self) -> None:
        if self._reader is not None:
            self._reader.send_signal(signal.SIGINT)

    def send(self, bootstrap: str, topic: str) -> None:
        with self._popen("produce", topic, "-b", bootstrap, "--input", "json", "--json") as process:
            assert process.stdin is not None
            while not self.stop_sending.wait(INTERVAL_S):
                for partition in range(PARTITIONS):
                    record = {"partition": partition, "value": str(self.expect(partition))}
                    process.stdin.write(json.dumps(record) + "\n")
                process.stdin.flush()
            output, errors = process.communicate(timeout=END_SECONDS)
        assert process.returncode == 0, errors
        document = json.loads(output)
        assert document["failed"] == 0, document
        assert document["acknowledged"] == sum(map(len, self._sent))
        for partition, offsets in enumerate(self._sent):
            for number in range(len(offsets)):
                self.acknowledge(partition, number, number)

    def read(self, bootstrap: str, topic: str, group: str) -> None:
        options = ("-G", group, "-f", r"%p %o %s\n", "-b", bootstrap)
        with self._popen("consume", topic, *options) as process:
            assert process.stdout is not None
            self._reader = process
            for line in process.stdout:
                partition, offset, value = line.split()
                self.receive(int(partition), int(offset), value)
            _, errors = process.communicate(timeout=END_SECONDS)
        assert process.returncode == 0, errors

    def _popen(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", _PROGRAM, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


_PROGRAM = str(Path(sys.executable).with_name("penstock"))


def own_streams() -> dict[str, Callable[[], Stream]]:
    """Returns the streams of our clients by their names."""
    return {stream.name: stream for stream in (BlockingStream, AsyncioStream, CommandStream)}
