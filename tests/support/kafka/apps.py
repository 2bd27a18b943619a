"""Kafka Streams and Kafka Connect, which use Kafka's client and run against a broker.

`make setup` fetches the published jars into `.parts` and compiles `tools/kafka-apps` with them.
"""

import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.support.kafka.broker import (
    JAVA_DIRECTORY,
    JVM_OPTIONS,
    ROOT,
    KafkaParts,
    KafkaToolError,
    MissingPartError,
    wait_until,
)

STOP_SECONDS = 30.0
ENDED_BY_SIGTERM = 128 + signal.SIGTERM
"""The exit code of a JVM after SIGTERM, once its shutdown hooks have run."""


@dataclass(frozen=True)
class KafkaApps:
    """The location of the jars and the compiled programs, and the commands that run them."""

    java: Path
    directory: Path

    @classmethod
    def find(cls) -> Self:
        parts = KafkaParts.find()
        directory = ROOT / ".parts" / f"kafka-apps-{parts.version}"
        needed = [f"libs/{jar}-{parts.version}.jar" for jar in ("kafka-streams", "connect-file")]
        if not all((directory / part).exists() for part in (*needed, "classes/WordCount.class")):
            raise MissingPartError(
                f"Kafka Streams and Connect ({parts.version}) are missing: run make setup"
            )
        return cls(parts.java, directory)

    def command(self, main: str, *arguments: str, scratch: Path) -> list[str]:
        """Returns the command line that runs a class; `scratch` is for temporary files."""
        return [
            str(self.java),
            *JVM_OPTIONS,
            "-Xmx256m",
            f"-Djava.io.tmpdir={scratch}",
            f"-Dlog4j2.configurationFile={JAVA_DIRECTORY / 'log4j2.properties'}",
            "-Dpenstock.log.level=info",
            "-cp",
            f"{self.directory / 'classes'}:{self.directory / 'libs'}/*",
            main,
            *arguments,
        ]


class App:
    """A program that runs until it is stopped or killed, and can then be started again.

    The output since its last start is in `log`. Used as a context manager it never outlives
    the block.
    """

    def __init__(self, apps: KafkaApps, directory: Path, main: str, *arguments: str) -> None:
        self.log = directory / "app.log"
        self._directory = directory
        self._command = apps.command(main, *arguments, scratch=directory)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if self._process is None:
            self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._process is not None:
            self.kill()

    def start(self) -> None:
        if self._process is not None:
            raise KafkaToolError("this program is running already")
        # setpriv lets the kernel end the program if the test process is itself killed.
        guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*guard, *self._command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
            )

    def stop(self) -> None:
        """Sends SIGTERM and waits for the program to end."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise KafkaToolError(f"the program did not stop:\n{self._log_end()}") from None
        self._process = None
        if process.returncode != ENDED_BY_SIGTERM:
            raise KafkaToolError(f"it ended with {process.returncode}:\n{self._log_end()}")

    def kill(self) -> None:
        """Kills the process with SIGKILL and reaps it."""
        process = self._running()
        process.kill()
        process.wait()
        self._process = None

    def wait_for(self, done: Callable[[], bool], what: str, deadline: float = 60) -> None:
        """Waits until the condition holds; raises if the program ends before that."""

        def is_done_or_dead() -> bool:
            return self._running().poll() is not None or done()

        try:
            wait_until(is_done_or_dead, what, deadline)
        except KafkaToolError as late:
            raise KafkaToolError(f"{late}:\n{self._log_end()}") from None
        if (status := self._running().poll()) is not None:
            raise KafkaToolError(f"{what}: it ended with {status}:\n{self._log_end()}")

    def printed(self) -> list[str]:
        """Returns the lines that it printed since its last start."""
        return self.log.read_text(errors="replace").splitlines()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise KafkaToolError("this program is not running")
        return self._process

    def _log_end(self) -> str:
        return "\n".join(self.printed()[-40:])


def write_properties(path: Path, settings: Mapping[str, str]) -> str:
    """Writes a Java properties file and returns its path, for a command line."""
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)
