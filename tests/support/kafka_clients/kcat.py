"""kcat: librdkafka on the command line."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from tests.support.kafka.broker import MissingPartError
from tests.support.kafka_clients.confluent_client import ConfluentClient
from tests.support.kafka_clients.model import (
    NO_CODE,
    NO_OFFSET,
    Acks,
    Client,
    ClientError,
    GroupRead,
    Header,
    Record,
)

TIMEOUT = 20.0
KEY_END = "\x1f"
# Lengths first (-1 is null), so that keys and values may be any bytes.
FORMAT = r"%p %o %T %K %S %h\n%k%s\n"
CODES = {
    "Message size too large": 10,
    "Unknown topic or partition": 3,
    "Local: Unknown topic": 3,
}


class KcatClient(Client):
    """One run sends the records that share key and headers: kcat has those per run."""

    name = "kcat"
    sets_timestamps = False
    returns_offsets = False

    def __init__(self) -> None:
        result = shutil.which("kcat")
        if result is None:
            raise MissingPartError("kcat is missing: run make setup")
        self._program = result

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: Acks = "all",
        idempotent: bool = False,
        auto_create: bool = False,
        timeout: float = TIMEOUT,
    ) -> list[int]:
        settings = {
            "compression.codec": codec,
            "acks": acks,
            "enable.idempotence": str(idempotent).lower(),
            "allow.auto.create.topics": str(auto_create).lower(),
            "topic.metadata.propagation.max.ms": str(int(timeout * 1000)),
            "message.max.bytes": str(4 << 20),
        }
        shared = ["-P", "-t", topic]
        for name, value in settings.items():
            shared += ["-X", f"{name}={value}"]
        for (partition, key, headers, empty), group in groupby(records, _run_of):
            options: list[str | bytes] = [*shared, "-p", str(partition)]
            for name, data in headers:
                options += ["-H", name.encode() if data is None else name.encode() + b"=" + data]
            if empty:
                self._produce_empty(bootstrap, options, list(group))
            else:
                if key is not None:
                    options += ["-k", key]
                self._produce_files(bootstrap, options, list(group))
        return [NO_OFFSET] * len(records)

    def _produce_files(
        self, bootstrap: str, options: list[str | bytes], records: list[Record]
    ) -> None:
        with tempfile.TemporaryDirectory() as directory:
            files: list[str | bytes] = []
            for index, record in enumerate(records):
                file = Path(directory) / str(index)
                file.write_bytes(record.value or b"")
                files.append(str(file))
            self._run(bootstrap, *options, *files)

    def _produce_empty(
        self, bootstrap: str, options: list[str | bytes], records: list[Record]
    ) -> None:
        """kcat skips an empty file, but not over a line that ends after the key."""
        for record in records:
            if record.key is None:
                raise ValueError("kcat sends no empty value without a key")
            null = ["-Z"] if record.value is None else []
            line = record.key + KEY_END.encode()
            self._run(bootstrap, *options, *null, "-K", KEY_END, stdin=line)

    def consume(
        self, bootstrap: str, topic: str, partitions: Sequence[int], count: int
    ) -> list[Record]:
        del partitions  # it reads all of them
        arguments = ["-C", "-t", topic, "-o", "beginning", "-c", str(count), "-q", "-f", FORMAT]
        return _parsed(self._run(bootstrap, *arguments))

    def consume_group(self, bootstrap: str, topic: str, group: str, count: int) -> GroupRead:
        settings = ["-X", "auto.offset.reset=earliest"]
        arguments = ["-G", group, "-c", str(count), "-q", "-f", FORMAT, *settings, topic]
        records = _parsed(self._run(bootstrap, *arguments))
        partitions = max(record.partition for record in records) + 1
        # It commits when it ends, and does not report the offsets.
        committed = ConfluentClient().committed(bootstrap, topic, group, partitions)
        return GroupRead(records, committed)

    def offset_for_time(self, bootstrap: str, topic: str, partition: int, timestamp: int) -> int:
        printed = self._run(bootstrap, "-Q", "-t", f"{topic}:{partition}:{timestamp}")
        match = re.search(rb"offset (-?\d+)", printed)
        assert match is not None, printed
        return int(match[1])

    def _run(self, bootstrap: str, *arguments: str | bytes, stdin: bytes = b"") -> bytes:
        command = [self._program, "-b", bootstrap, *arguments]
        if arguments[0] in ("-C", "-G"):  # the end of a partition is known after a fetch of nothing
            command[3:3] = ["-X", "fetch.wait.max.ms=10"]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)
        stderr = done.stderr.decode(errors="replace")
        if done.returncode != 0:
            codes = (code for text, code in CODES.items() if text in stderr)
            raise ClientError(next(codes, NO_CODE), stderr)
        return done.stdout


def _run_of(record: Record) -> tuple[int, bytes | None, tuple[Header, ...], bool]:
    return record.partition, record.key, record.headers, not record.value


def _parsed(printed: bytes) -> list[Record]:
    records: list[Record] = []
    position = 0
    while position < len(printed):
        line_end = printed.index(b"\n", position)
        partition, offset, timestamp, key_length, value_length, headers = printed[
            position:line_end
        ].split(b" ", 5)
        position = line_end + 1
        fields: list[bytes | None] = []
        for length in (int(key_length), int(value_length)):
            fields.append(None if length < 0 else printed[position : position + length])
            position += max(0, length)
        position += 1
        key, value = fields
        records.append(
            Record(
                key=key,
                value=value,
                headers=_headers(headers),
                partition=int(partition),
                timestamp=int(timestamp),
                offset=int(offset),
            )
        )
    return records


def _headers(text: bytes) -> tuple[Header, ...]:
    """Parses `name=value,name=value`; the value NULL stands for null."""
    headers: list[Header] = []
    for pair in filter(None, text.split(b",")):
        name, _, value = pair.partition(b"=")
        headers.append((name.decode(), None if value == b"NULL" else value))
    return tuple(headers)
