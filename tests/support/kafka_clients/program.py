"""Clients of other languages: programs that read a JSON job per line and print a response line.

A job has an `op`, the broker's address and the operation's arguments, named as in `Client`; keys,
values and header values are base64 or null; `timeout_ms` limits its time. The response has
the result of the operation, or `error` with Kafka's `code` (-1 if there is none) and a `message`.
A program runs from the first job to `close`: starting a JVM for each job would be slow.
"""

import json
import os
import re
import selectors
import shutil
import subprocess
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from tests.support.kafka.broker import (
    JVM_OPTIONS,
    ROOT,
    KafkaParts,
    MissingPartError,
    class_sharing,
)
from tests.support.kafka_clients.model import (
    Acks,
    AdminClient,
    ClientError,
    GroupRead,
    Header,
    Record,
)

PARTS = ROOT / ".parts"
CLIENTS = ROOT / "tools" / "clients"
JOB_SECONDS = 20.0
GRACE_SECONDS = 40.0
"""How long a response may be late, beyond the job's own limit, before the program is killed."""

Json = bool | int | str | None | Sequence["Json"] | Mapping[str, "Json"]


class WireRecord(TypedDict):
    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: str | None
    headers: list[tuple[str, str | None]]


class Response(TypedDict, total=False):
    error: "WireError"
    offsets: list[int]
    records: list[WireRecord]
    committed: dict[str, int]
    offset: int
    configs: dict[str, str | None]
    transaction: "WireTransaction"
    states: dict[str, str]
    producers: list[dict[str, int]]
    assignment: list[tuple[str, int]]
    groups: dict[str, tuple[str | None, str | None]]
    group: "WireGroup"
    acknowledged: list[int]
    positions: list[int]
    sent: list[list[int]]
    read: list[list[tuple[int, int]]]


class WireTransaction(TypedDict):
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started: bool
    partitions: list[tuple[str, int]]


class WireMember(TypedDict, total=False):
    client_id: str
    instance_id: str | None
    assignment: list[tuple[str, int]]
    target: list[tuple[str, int]]


class WireGroup(TypedDict):
    type: str
    state: str
    assignor: str
    members: list[WireMember]


class WireError(TypedDict):
    code: int
    message: str


class ProgramClient(AdminClient):
    """A client that runs as a program."""

    def __init__(
        self,
        name: str,
        command: Callable[[Path], list[str]],
        environment: Mapping[str, str] | None = None,
        *,
        keeps_header_order: bool = True,
        writes_null_headers: bool = True,
        idempotent_by_default: bool = False,
    ) -> None:
        """`command` returns the command line for a directory for the program's files."""
        self.name = name
        self.keeps_header_order = keeps_header_order
        self.writes_null_headers = writes_null_headers
        self.idempotent_by_default = idempotent_by_default
        self._command = command
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

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
        timeout: float = JOB_SECONDS,
    ) -> list[int]:
        return self.do(
            bootstrap,
            topic,
            "produce",
            timeout,
            records=[to_wire(record) for record in records],
            codec=codec,
            acks=acks,
            idempotent=idempotent,
            auto_create=auto_create,
        )["offsets"]

    def consume(
        self, bootstrap: str, topic: str, partitions: Sequence[int], count: int
    ) -> list[Record]:
        response = self.do(bootstrap, topic, "consume", partitions=partitions, count=count)
        return [from_wire(record) for record in response["records"]]

    def consume_group(self, bootstrap: str, topic: str, group: str, count: int) -> GroupRead:
        response = self.do(bootstrap, topic, "consume_group", group=group, count=count)
        return GroupRead(
            [from_wire(record) for record in response["records"]],
            {int(partition): offset for partition, offset in response["committed"].items()},
        )

    def offset_for_time(self, bootstrap: str, topic: str, partition: int, timestamp: int) -> int:
        return self.do(
            bootstrap, topic, "offset_for_time", partition=partition, timestamp=timestamp
        )["offset"]

    def create_topic(
        self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str]
    ) -> None:
        self.do(bootstrap, topic, "create_topic", partitions=partitions, configs=configs)

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        self.do(bootstrap, topic, "delete_topic")

    def topic_configs(self, bootstrap: str, topic: str) -> dict[str, str | None]:
        return self.do(bootstrap, topic, "topic_configs")["configs"]

    def do(
        self,
        bootstrap: str,
        topic: str,
        op: str,
        seconds: float = JOB_SECONDS,
        **arguments: Json,
    ) -> Response:
        job = {"op": op, "bootstrap": bootstrap, "topic": topic, **arguments}
        job["timeout_ms"] = int(seconds * 1000)
        try:
            process = self._running()
            assert process.stdin is not None
            process.stdin.write(json.dumps(job).encode() + b"\n")
            process.stdin.flush()
            response: Response = json.loads(self._line(process, op, seconds + GRACE_SECONDS))
        except BaseException:  # the test's own time limit: the next job must not get this response
            self.close()
            raise
        if "error" in response:
            raise ClientError(response["error"]["code"], response["error"]["message"])
        return response

    def _line(self, process: subprocess.Popen[bytes], op: str, seconds: float) -> bytes:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            is_readable = selector.select(seconds)
        line = process.stdout.readline() if is_readable else b""
        if not line.endswith(b"\n"):
            reason = "ended" if is_readable else f"sent no response within {seconds} s"
            raise AssertionError(f"{self.name} {reason} at {op}:\n{self._printed()}")
        return line

    def _printed(self) -> str:
        assert self._scratch is not None
        return (Path(self._scratch.name) / "stderr").read_text(errors="replace")[-4000:]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._scratch = tempfile.TemporaryDirectory()
            directory = Path(self._scratch.name)
            command = self._command(directory)
            # setpriv lets the kernel end the program if the test process is itself killed.
            if shutil.which("setpriv"):
                command = ["setpriv", "--pdeathsig", "KILL", *command]
            with (directory / "stderr").open("wb") as stderr:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    env={**os.environ, **self._environment},
                )
        return self._process


def java_versions() -> list[str]:
    """Returns the versions of the Java client that make setup provides, from the poms."""
    poms = [
        (CLIENTS / "java" / "pom.xml", r"<clients\.versions>(.+?)</"),
        (ROOT / "tools" / "kafka" / "pom.xml", r"<kafka\.version>(.+?)</"),
    ]
    versions: set[str] = set()
    for pom, pattern in poms:
        match = re.search(pattern, pom.read_text())
        if match is None:
            raise MissingPartError(f"{pom.relative_to(ROOT)} names no version")
        versions.update(match[1].split())
    return sorted(versions)


def java_client(version: str) -> Callable[[], ProgramClient]:
    """Returns the function that creates the Java client of one version."""

    def make() -> ProgramClient:
        if not (_java_client_directory(version) / "classes" / "KafkaClient.class").exists():
            raise MissingPartError(f"the Java client {version} is missing: run make setup")
        KafkaParts.find()

        def command(scratch: Path) -> list[str]:
            return java_client_command(version, scratch)

        return ProgramClient(f"java-{version}", command, idempotent_by_default=True)

    return make


def java_client_command(version: str, scratch: Path) -> list[str]:
    """Returns the command line of the Java client; `scratch` is for temporary files."""
    libs = java_client_libs(version)
    return [
        str(KafkaParts.find().java),
        *JVM_OPTIONS,
        *class_sharing(libs),
        f"-Djava.io.tmpdir={scratch}",
        f"-Dlog4j2.configurationFile={ROOT / 'tests/compat/java/log4j2.properties'}",
        "-cp",
        f"{libs}/*:{_java_client_directory(version)}/classes",
        "KafkaClient",
    ]


def java_client_libs(version: str) -> Path:
    """Returns the directory of the jars; that of Kafka's own version is Kafka's."""
    return (_java_client_directory(version) / "libs").resolve()


def _java_client_directory(version: str) -> Path:
    return PARTS / "java-clients" / version


def franz_go() -> ProgramClient:
    program = PARTS / "bin" / "franz-go-client"
    if not program.exists():
        raise MissingPartError("the franz-go client is missing: run make setup")
    return ProgramClient("franz-go", lambda scratch: [str(program)], idempotent_by_default=True)


def kafkajs() -> ProgramClient:
    modules = PARTS / "node" / "node_modules"
    node = shutil.which("node")
    if node is None:
        raise MissingPartError("Node.js 18 or newer is missing: run make setup")
    if not (modules / "kafkajs").exists():
        raise MissingPartError("KafkaJS is missing: run make setup")
    return ProgramClient(
        "kafkajs",
        lambda scratch: [node, str(CLIENTS / "kafkajs" / "client.js")],
        {"NODE_PATH": str(modules)},
        keeps_header_order=False,
        writes_null_headers=False,
    )


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def to_wire(record: Record) -> dict[str, Json]:
    return {
        "partition": record.partition,
        "timestamp": record.timestamp,
        "key": _encoded(record.key),
        "value": _encoded(record.value),
        "headers": [[name, _encoded(value)] for name, value in record.headers],
    }


def from_wire(wire: WireRecord) -> Record:
    headers: list[Header] = [(name, _decoded(value)) for name, value in wire["headers"]]
    return Record(
        key=_decoded(wire["key"]),
        value=_decoded(wire["value"]),
        headers=tuple(headers),
        partition=wire["partition"],
        timestamp=wire["timestamp"],
        offset=wire["offset"],
    )
