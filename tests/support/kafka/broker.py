"""Apache Kafka, as a reference for the tests: its tools and a real broker.

`make setup` fetches Kafka's published jars into `.parts`. A test that needs them and does not find
them fails with the name of what is missing; it is never skipped.
"""

import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[3]
JAVA_DIRECTORY = ROOT / "tests" / "compat" / "java"
CLUSTER_ID = "cGVuc3RvY2stY29tcGF0MQ"

# A short startup time matters more here than peak performance.
JVM_OPTIONS = (
    "-Xmx512m",
    "-Xshare:auto",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
)

CLASS_SHARING_OPTIONS = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""A JVM ignores an archive of classes that does not match; it must not print that to stdout."""

GAPS = "Non-consecutive offsets in "
MAX_ARGUMENT_BYTES = 100_000  # Linux refuses a single argument over 128 KiB


class MissingPartError(Exception):
    """A part that `make setup` provides is missing."""


class KafkaToolError(Exception):
    """A Kafka process failed; the message contains its output."""


@dataclass(frozen=True)
class Run:
    """The output of a Java program that ended successfully."""

    stdout: str
    stderr: str


@dataclass(frozen=True)
class KafkaParts:
    """The location of Java and Kafka's jars, and the commands that run programs with them."""

    java: Path
    libs: Path
    version: str

    @classmethod
    def find(cls, version: str = "kafka.version") -> Self:
        """Finds the release that a property of tools/kafka/pom.xml names."""
        pom = (ROOT / "tools" / "kafka" / "pom.xml").read_text()
        match = re.search(f"<{re.escape(version)}>(.+?)</", pom)
        if match is None:
            raise MissingPartError(f"tools/kafka/pom.xml names no {version}")
        libs = ROOT / ".parts" / f"kafka-{match[1]}" / "libs"
        if not (libs / f"kafka-clients-{match[1]}.jar").exists():
            raise MissingPartError(f"Kafka's jars ({match[1]}) are missing: run make setup")
        java = shutil.which("java")
        if java is None:
            raise MissingPartError("Java 17 or newer is missing: run make setup")
        return cls(Path(java), libs.resolve(), match[1])

    def command(
        self, program: str | Path, *arguments: str, scratch: str | Path, log_level: str = "warn"
    ) -> list[str]:
        """Returns the command line that runs a class of Kafka's, or a Java source file of ours.

        `scratch` is a directory for temporary files of the JVM: the codecs unpack libraries there.
        """
        classes = f"{self.libs}/*"
        if isinstance(program, Path):
            # Behind the jars: the archive is valid only if the class path begins with them.
            classes = f"{classes}:{self._compiled(program)}"
            program = program.stem
        return [
            str(self.java),
            *JVM_OPTIONS,
            *class_sharing(self.libs),
            f"-Djava.io.tmpdir={scratch}",
            f"-Dlog4j2.configurationFile={JAVA_DIRECTORY / 'log4j2.properties'}",
            f"-Dpenstock.log.level={log_level}",
            "-cp",
            classes,
            program,
            *arguments,
        ]

    def _compiled(self, source: Path) -> Path:
        """Compiles a program, unless its source is unchanged, and returns the class directory."""
        made_of = (source.read_bytes(), str(self.libs).encode(), str(self.java.resolve()).encode())
        digest = sha256(b"\0".join(made_of)).hexdigest()[:16]
        directory = ROOT / ".parts" / "test-classes" / f"{source.stem}-{digest}"
        if directory.exists():
            return directory
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent) as temporary_directory:
            # As a module, because a JRE with the compiler has no `javac` command.
            compiler = (str(self.java), "-m", "jdk.compiler/com.sun.tools.javac.Main")
            jars = ":".join(map(str, self.libs.glob("*.jar")))
            done = subprocess.run(
                [*compiler, "-cp", jars, "-d", f"{temporary_directory}/classes", str(source)],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                raise KafkaToolError(f"{source.name} does not compile:\n{done.stderr}")
            try:
                Path(temporary_directory, "classes").rename(directory)
            except OSError:
                if not directory.exists():  # otherwise another process was faster
                    raise
        return directory

    def run(
        self, program: str | Path, *arguments: str, stdin: str = "", timeout: float = 120
    ) -> Run:
        """Runs a program to its end; raises KafkaToolError if it fails or takes too long."""
        with tempfile.TemporaryDirectory() as scratch:
            try:
                done = subprocess.run(
                    self.command(program, *arguments, scratch=scratch),
                    input=stdin,
                    capture_output=True,
                    text=True,
                    timeout=timeout,
                    check=False,
                )
            except subprocess.TimeoutExpired as expired:
                raise KafkaToolError(f"{program} did not end within {timeout} s") from expired
        if done.returncode != 0:
            printed = f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
            raise KafkaToolError(f"{program} ended with {done.returncode}:\n{printed}")
        return Run(done.stdout, done.stderr)


def archive_of(libs: Path) -> Path:
    """Returns the path of the archive of classes for a directory of jars (see `class_archive`)."""
    return libs.parent / "classes.jsa"


def class_sharing(libs: Path) -> tuple[str, ...]:
    """Returns the options of a JVM that uses the archive of these jars, if the archive exists.

    The JVM's class path must begin with the jars: `{libs}/*`.
    """
    archive = archive_of(libs)
    if not archive.exists():
        return ()
    return f"-XX:SharedArchiveFile={archive}", *CLASS_SHARING_OPTIONS


@dataclass(frozen=True)
class Dump:
    """The output of DumpLogSegments."""

    files: dict[Path, list[str]]
    """The lines about each file."""
    complaints: list[str]
    """The errors that it reported, each with its details on several lines."""
    gaps: dict[Path, list[tuple[int, int]]]
    """Adjacent offsets that are not consecutive, by log; valid only after compaction."""

    @property
    def text(self) -> str:
        return "\n".join(line for lines in self.files.values() for line in lines)


def dump_log_segments(files: Iterable[Path], *options: str) -> Dump:
    """Dumps log, index, timeindex, txnindex and snapshot files with Kafka's tool.

    Options are those of the tool: `--deep-iteration`, `--print-data-log`, `--index-sanity-check`,
    `--verify-index-only`, `--offsets-decoder`, `--transaction-log-decoder` and so on. An index is
    compared with the log beside it. Starting a JVM is expensive: pass many files at once.
    """
    parts = KafkaParts.find()
    dumped: dict[Path, list[str]] = {}
    complaints: list[str] = []
    gaps: dict[Path, list[tuple[int, int]]] = {}
    for names in _arguments(files):
        run = parts.run(
            "org.apache.kafka.tools.DumpLogSegments", *options, "--files", ",".join(names)
        )
        lines: list[str] = []
        for line in run.stdout.splitlines():
            if line.startswith("Dumping "):
                lines = dumped.setdefault(Path(line.removeprefix("Dumping ")), [])
            lines.append(line)
            if "isvalid: false" in line.lower() or re.match(r"Found \d+ invalid bytes", line):
                complaints.append(line)
        for remark in _remarks(run.stderr):
            if not remark.startswith(GAPS):
                complaints.append(remark)
                continue
            pairs = re.findall(r"(-?\d+) is followed by (\d+)", remark)
            # The tool starts each file at -1, and so reports a gap before every base offset but 0.
            if result := [(int(before), int(right)) for before, right in pairs if before != "-1"]:
                gaps[Path(remark.splitlines()[0].removeprefix(GAPS))] = result
    return Dump(dumped, complaints, gaps)


def _arguments(files: Iterable[Path]) -> Iterable[list[str]]:
    """Yields the files in groups that each fit into one comma-separated argument."""
    group: list[str] = []
    size = 0
    for name in map(str, files):
        if "," in name:
            raise ValueError(f"DumpLogSegments separates files by commas, and {name} has one")
        if group and size + len(name) > MAX_ARGUMENT_BYTES:
            yield group
            group, size = [], 0
        group.append(name)
        size += len(name) + 1
    if group:
        yield group


def _remarks(stderr: str) -> list[str]:
    """Returns the messages in stderr: each is a line with its indented continuation lines."""
    remarks: list[str] = []
    for line in stderr.splitlines():
        if line.startswith("  ") and remarks:
            remarks[-1] += "\n" + line
        elif line.strip() and not line.startswith("Picked up "):  # JAVA_TOOL_OPTIONS
            remarks.append(line)
    return remarks


def wait_until(ready: Callable[[], bool], what: str, deadline: float = 60) -> None:
    """Polls until the condition holds, which another process causes; fails after `deadline`."""
    end = time.monotonic() + deadline
    while not ready():
        if time.monotonic() > end:
            raise KafkaToolError(f"{what}: not within {deadline} s")
        time.sleep(0.02)


class KafkaBroker:
    """A real Kafka node (broker and controller in one) on free ports of the loopback address.

    Everything it writes is under `directory`: its data in `data`, its log in `broker.log`. It can
    be restarted. Used as a context manager it never outlives the block.
    """

    def __init__(
        self,
        parts: KafkaParts,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        listeners: Sequence[str] = (),
    ) -> None:
        """`listeners` are security protocols, each of a listener on localhost besides PLAINTEXT."""
        self.parts = parts
        self.directory = directory
        self.data = directory / "data"
        self.log = directory / "broker.log"
        self.port = 0
        self.ports: dict[str, int] = dict.fromkeys(listeners, 0)
        """The ports of `listeners`."""
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._process is not None:
            self.kill()

    def start(self, deadline: float = 60) -> None:
        """Starts and waits until it serves clients; tries other ports if one is in use."""
        if self._process is not None:
            raise KafkaToolError("this broker is running already")
        for _ in range(3):
            properties = self._write_properties()
            if not (self.data / "meta.properties").exists():
                self.data.mkdir(exist_ok=True)
                for name, content in formatted(self.parts).items():
                    (self.data / name).write_bytes(content)
            self._spawn(properties)
            try:
                wait_until(self._is_ready_or_dead, "the start of Kafka", deadline)
            except KafkaToolError as error:
                self.kill()
                raise KafkaToolError(f"{error}:\n{self._log_end()}") from None
            except BaseException:  # the test's own time limit, or Ctrl-C
                self.kill()
                raise
            if self._running().poll() is None:
                return
            self.kill()
            if "BindException" not in self.log.read_text():
                break
        raise KafkaToolError(f"Kafka did not start:\n{self._log_end()}")

    def stop(self, deadline: float = 60) -> None:
        """Requests a clean shutdown and waits for it; the data then has the clean shutdown file."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(deadline)
        except subprocess.TimeoutExpired:
            self.kill()
            raise KafkaToolError(f"Kafka did not stop:\n{self._log_end()}") from None
        self._process = None
        if not (self.data / ".kafka_cleanshutdown").exists():
            raise KafkaToolError(f"Kafka did not stop cleanly:\n{self._log_end()}")

    def kill(self) -> None:
        """Kills the process with SIGKILL and reaps it."""
        process = self._running()
        process.kill()
        process.wait()
        self._process = None

    def partition_directory(self, topic: str, partition: int) -> Path:
        return self.data / f"{topic}-{partition}"

    def log_lines(self, *levels: str) -> list[str]:
        """Returns the broker's log since its last start: all lines, or those of these levels."""
        lines = self.log.read_text().splitlines()
        marks = tuple(f" {level} " for level in levels)
        return [line for line in lines if not marks or line[12:].startswith(marks)]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise KafkaToolError("this broker is not running")
        return self._process

    def _write_properties(self) -> Path:
        self.port, controller_port, *others = _free_ports(2 + len(self.ports))
        self.ports = dict(zip(self.ports, others, strict=True))
        addresses = {"PLAINTEXT": self.port, **self.ports, "CONTROLLER": controller_port}
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": ",".join(
                f"{name}://{'localhost' if name in self.ports else '127.0.0.1'}:{port}"
                for name, port in addresses.items()
            ),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": ",".join(
                f"{name}:{'PLAINTEXT' if name == 'CONTROLLER' else name}" for name in addresses
            ),
            "log.dirs": str(self.data),
            "log.index.size.max.bytes": "65536",  # preallocated: 10 MiB each is slow to copy
            "log.cleaner.backoff.ms": "100",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            **self._settings,
        }
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return properties

    def _spawn(self, properties: Path) -> None:
        scratch = self.directory / "tmp"
        scratch.mkdir(exist_ok=True)
        command = self.parts.command(
            "kafka.Kafka", str(properties), scratch=scratch, log_level="info"
        )
        if self.parts.version.startswith("3."):  # it has another library for its log
            command.insert(1, f"-Dlog4j.configuration=file:{JAVA_DIRECTORY / 'log4j.properties'}")
        # setpriv lets the kernel end the broker if the test process is itself killed.
        if shutil.which("setpriv"):
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
            )

    def _is_ready_or_dead(self) -> bool:
        return self._running().poll() is not None or "Kafka Server started" in self.log.read_text()

    def _log_end(self) -> str:
        return "\n".join(self.log.read_text().splitlines()[-40:]) if self.log.exists() else ""


@cache
def formatted(parts: KafkaParts) -> dict[str, bytes]:
    """Returns the files of an empty data directory of node 1; Kafka's tool takes seconds."""
    with tempfile.TemporaryDirectory() as directory:
        data, properties = Path(directory, "data"), Path(directory, "server.properties")
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@127.0.0.1:1",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:1",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(data),
        }
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        parts.run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties))
        return {path.name: path.read_bytes() for path in data.iterdir()}


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [socket.getsockname()[1] for socket in sockets]
    finally:
        for bound_socket in sockets:
            bound_socket.close()
