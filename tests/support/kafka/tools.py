"""Kafka's own command-line tools, one after the other in one JVM: starting a JVM is expensive.

with KafkaTools(KafkaParts.find()) as tools:
    shell = Shell(tools, "127.0.0.1:9092")
    assert shell("topics", "--list").lines == []
"""

import json
import selectors
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.support.kafka.broker import ROOT, KafkaParts, KafkaToolError

JAVA_DIRECTORY = ROOT / "tests" / "compat" / "tools" / "java"
JOB_SECONDS = 30.0
GRACE_SECONDS = 30.0
"""How long a response may be late, beyond the job's own limit, before the JVM is killed."""

MAIN_CLASSES: Mapping[str, str] = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
}
"""By the names of Kafka's scripts: `kafka-topics.sh` is topics."""

ADDRESS_FIRST = frozenset({"features", "transactions"})
"""Tools with subcommands that take the broker's address only in front of them."""

QUICK: Mapping[str, Sequence[str]] = {
    "console-consumer": ("--command-property", "fetch.max.wait.ms=10"),
}
"""Options that end a tool sooner: by default it waits for a fetch of 0.5 s."""


@dataclass(frozen=True)
class ToolRun:
    """The result of a tool. `exit` is None if it did not end in time."""

    exit: int | None
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The printed lines, stripped and without empty ones."""
        return [line.strip() for line in self.out.splitlines() if line.strip()]

    @property
    def text(self) -> str:
        """The output as in a terminal."""
        return self.out + self.err

    def rows(self, *columns: str) -> list[list[str]]:
        """Returns these columns of the printed table, with the rows sorted.

        Cells have no blanks in them, and only the last of a row may be empty.
        """
        table = [line.split() for line in self.lines]
        while columns[0] not in table[0]:
            del table[0]
        head, *rows = table
        places = [head.index(column) for column in columns]
        return sorted([(*row, "")[place] for place in places] for row in rows)


class KafkaTools:
    """The JVM. It starts with the first tool and ends with `close`."""

    def __init__(self, parts: KafkaParts) -> None:
        self._parts = parts
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def run(
        self, tool: str, *arguments: str, stdin: str = "", timeout: float = JOB_SECONDS
    ) -> ToolRun:
        """Runs a tool with exactly these arguments; a failure is a result too."""
        process = self._process or self._start()
        job = {
            "main": MAIN_CLASSES[tool],
            "args": arguments,
            "stdin": stdin,
            "timeout_ms": int(timeout * 1000),
        }
        assert process.stdin is not None
        process.stdin.write(json.dumps(job).encode() + b"\n")
        process.stdin.flush()
        response = json.loads(self._read_response(process, timeout + GRACE_SECONDS))
        if response["exit"] is None:  # it still runs, and would print into the next response
            self.close()
        return ToolRun(response["exit"], response["out"], response["err"])

    def _start(self) -> subprocess.Popen[bytes]:
        self._scratch = tempfile.TemporaryDirectory()
        command = self._parts.command(
            JAVA_DIRECTORY / "RunTools.java",
            str(JAVA_DIRECTORY / "log4j2.properties"),
            scratch=self._scratch.name,
        )
        with (Path(self._scratch.name) / "stderr").open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
        return self._process

    def _read_response(self, process: subprocess.Popen[bytes], timeout: float) -> bytes:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            response = process.stdout.readline() if selector.select(timeout) else b""
        if response:
            return response
        assert self._scratch is not None
        stderr = (Path(self._scratch.name) / "stderr").read_text(errors="replace")[-4000:]
        self.close()
        raise KafkaToolError(f"no response from the tools within {timeout} s:\n{stderr}")


class Shell:
    """The tools of one user against one broker: `shell("topics", "--list")`.

    `configuration` is a properties file with the login of a client.
    """

    def __init__(
        self, tools: KafkaTools, bootstrap: str, configuration: Path | None = None
    ) -> None:
        self.bootstrap = bootstrap
        self._tools = tools
        self._common = ["--bootstrap-server", bootstrap]
        if configuration is not None:
            self._common += ["--command-config", str(configuration)]

    def __call__(
        self, tool: str, *arguments: str, stdin: str = "", timeout: float = JOB_SECONDS
    ) -> ToolRun:
        """Runs a tool that must succeed; otherwise KafkaToolError has its output."""
        run = self.attempt(tool, *arguments, stdin=stdin, timeout=timeout)
        if run.exit != 0:
            end = "did not end in time" if run.exit is None else f"ended with {run.exit}"
            raise KafkaToolError(f"{tool} {' '.join(arguments)} {end}:\n{run.text[-6000:]}")
        return run

    def attempt(
        self, tool: str, *arguments: str, stdin: str = "", timeout: float = JOB_SECONDS
    ) -> ToolRun:
        """Runs a tool that may fail."""
        if tool in ADDRESS_FIRST:
            command_line = [*self._common, *arguments]
        else:
            command_line = [*arguments, *self._common, *QUICK.get(tool, ())]
        return self._tools.run(tool, *command_line, stdin=stdin, timeout=timeout)
