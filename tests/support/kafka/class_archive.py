"""A class data sharing archive (AppCDS) of Kafka's classes: with it Kafka starts in half the time.

`make setup` creates it beside Kafka's jars, and `KafkaParts.command` uses it if it exists:

    python -m tests.support.kafka.class_archive
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.support.kafka.broker import (
    CLASS_SHARING_OPTIONS,
    KafkaBroker,
    KafkaParts,
    KafkaToolError,
    formatted,
)
from tests.support.kafka.logs import READ_KAFKA_LOG, WRITE_KAFKA_LOG


@dataclass(frozen=True)
class RecordingParts(KafkaParts):
    """Kafka parts whose JVMs each write a list of the classes that they loaded."""

    lists: Path

    def command(
        self, program: str | Path, *arguments: str, scratch: str | Path, log_level: str = "warn"
    ) -> list[str]:
        command = super().command(program, *arguments, scratch=scratch, log_level=log_level)
        handle, name = tempfile.mkstemp(".classes", dir=self.lists)
        os.close(handle)
        at = command.index("-cp")
        return [*command[:at], f"-XX:DumpLoadedClassList={name}", *command[at:]]


def make_archive() -> None:
    """Creates the archive again. Takes about 15 seconds."""
    parts = KafkaParts.find()
    parts.archive.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=parts.archive.parent) as temporary:
        directory = Path(temporary)
        lists = directory / "lists"
        lists.mkdir()
        _run_kafka(RecordingParts(parts.java, parts.libs, parts.version, lists), directory)
        classes = directory / "all.classes"
        classes.write_text("".join(_union(sorted(lists.iterdir()))))
        archive = directory / "classes.jsa"
        done = subprocess.run(
            [
                *(str(parts.java), "-Xshare:dump", *CLASS_SHARING_OPTIONS, "-XX:+UseSerialGC"),
                f"-XX:SharedClassListFile={classes}",
                f"-XX:SharedArchiveFile={archive}",
                *("-cp", f"{parts.libs}/*"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise KafkaToolError(f"Java created no archive of Kafka's classes:\n{done.stderr}")
        archive.rename(parts.archive)


def _run_kafka(parts: KafkaParts, directory: Path) -> None:
    """Runs a broker, and clients that load most of the classes that the tests use."""
    formatted(parts)
    with KafkaBroker(parts, directory / "broker") as broker:
        parts.run(WRITE_KAFKA_LOG, broker.bootstrap, "1")
        request = {"read": ["codec-none", "transactions"], "timestamps": {}}
        parts.run(READ_KAFKA_LOG, broker.bootstrap, stdin=json.dumps(request))
        broker.stop()


def _union(lists: Iterable[Path]) -> Iterable[str]:
    """Returns the lines of all lists in their order, each once."""
    return dict.fromkeys(
        line for path in lists for line in path.read_text().splitlines(keepends=True)
    )


if __name__ == "__main__":
    make_archive()
