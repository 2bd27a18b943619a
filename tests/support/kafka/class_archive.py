"""Class data sharing archives (AppCDS) of Kafka and its Java clients: they start in half the time.

`make setup` creates an archive beside each directory of jars, and a JVM of these tests uses it if
it exists (see `class_sharing`):

    python -m tests.support.kafka.class_archive
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.kafka.broker import (
    CLASS_SHARING_OPTIONS,
    KafkaBroker,
    KafkaParts,
    KafkaToolError,
    archive_of,
    formatted,
)
from tests.support.kafka.logs import READ_KAFKA_LOG, WRITE_KAFKA_LOG
from tests.support.kafka_clients.model import Record
from tests.support.kafka_clients.program import (
    java_client_command,
    java_client_libs,
    java_versions,
    to_wire,
)


def record_classes(command: Sequence[str], lists: Path) -> list[str]:
    """Returns the command of a JVM that also writes a list of the classes that it loaded."""
    handle, name = tempfile.mkstemp(".classes", dir=lists)
    os.close(handle)
    at = command.index("-cp")
    return [*command[:at], f"-XX:DumpLoadedClassList={name}", *command[at:]]


@dataclass(frozen=True)
class RecordingParts(KafkaParts):
    """Kafka parts whose JVMs each write a list of the classes that they loaded."""

    lists: Path

    def command(
        self, program: str | Path, *arguments: str, scratch: str | Path, log_level: str = "warn"
    ) -> list[str]:
        command = super().command(program, *arguments, scratch=scratch, log_level=log_level)
        return record_classes(command, self.lists)


def make_archives() -> None:
    """Creates the archives again. Takes about half a minute."""
    parts = KafkaParts.find()
    with tempfile.TemporaryDirectory(dir=parts.libs.parent) as temporary:
        directory = Path(temporary)
        lists_of: dict[Path, Path] = {}
        for libs in {parts.libs, *map(java_client_libs, java_versions())}:
            archive_of(libs).unlink(missing_ok=True)
            lists_of[libs] = directory / f"lists-{len(lists_of)}"
            lists_of[libs].mkdir()
        recording = RecordingParts(parts.java, parts.libs, parts.version, lists_of[parts.libs])
        formatted(recording)
        with KafkaBroker(recording, directory / "broker") as broker:
            _run_programs(recording, broker.bootstrap)
            for version in java_versions():
                _run_client(version, broker.bootstrap, lists_of[java_client_libs(version)])
            broker.stop()
        for libs, lists in lists_of.items():
            _write_archive(parts.java, libs, lists)


def _run_programs(parts: KafkaParts, bootstrap: str) -> None:
    """Runs programs that load most of the classes that the tests use."""
    parts.run(WRITE_KAFKA_LOG, bootstrap, "1")
    request = {"read": ["codec-none", "transactions"], "timestamps": {}}
    parts.run(READ_KAFKA_LOG, bootstrap, stdin=json.dumps(request))


def _run_client(version: str, bootstrap: str, lists: Path) -> None:
    """Runs a Java client that writes, reads, and commits a transaction."""
    common = {"bootstrap": bootstrap, "topic": f"client-{version}", "timeout_ms": 20_000}
    record = to_wire(Record(None, b"value", partition=0, timestamp=1))
    produce = {"codec": "none", "acks": "all", "idempotent": True, "auto_create": False}
    producer = {"handle": "producer", "transactional_id": version, "transaction_timeout_ms": 9_000}
    jobs = [
        {"op": "create_topic", "partitions": 1, "configs": {}},
        {"op": "produce", "records": [record], **produce},
        {"op": "consume_group", "group": version, "count": 1},
        {"op": "producer_open", **producer},
        {"op": "producer_begin", **producer},
        {"op": "producer_send", "records": [record], **producer},
        {"op": "producer_commit", **producer},
        {"op": "producer_close", **producer},
    ]
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            record_classes(java_client_command(version, Path(scratch)), lists),
            input="".join(json.dumps({**common, **job}) + "\n" for job in jobs),
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0 or "error" in done.stdout:
        raise KafkaToolError(f"the Java client {version} failed:\n{done.stdout}\n{done.stderr}")


def _write_archive(java: Path, libs: Path, lists: Path) -> None:
    classes, archive = lists / "all", lists / "classes.jsa"
    classes.write_text("".join(_union(sorted(lists.glob("*.classes")))))
    done = subprocess.run(
        [
            *(str(java), "-Xshare:dump", *CLASS_SHARING_OPTIONS, "-XX:+UseSerialGC"),
            f"-XX:SharedClassListFile={classes}",
            f"-XX:SharedArchiveFile={archive}",
            *("-cp", f"{libs}/*"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise KafkaToolError(f"Java created no archive of the classes in {libs}:\n{done.stderr}")
    archive.rename(archive_of(libs))


def _union(lists: Iterable[Path]) -> Iterable[str]:
    """Returns the lines of all lists in their order, each once."""
    return dict.fromkeys(
        line for path in lists for line in path.read_text().splitlines(keepends=True)
    )


if __name__ == "__main__":
    make_archives()
