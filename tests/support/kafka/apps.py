"""What is built on Kafka's client and runs against a broker: Kafka Streams and Kafka Connect.

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
    JAVA_FOLDER,
    JVM_OPTIONS,
    ROOT,
    KafkaParts,
    KafkaToolError,
    MissingPartError,
    wait_until,
)

STOP_SECONDS = 30.0
ENDED_BY_SIGTERM = 128 + signal.SIGTERM
"""How a JVM ends that was asked to, once its shutdown hooks are done."""


@dataclass(frozen=True)
class KafkaApps:
    """Where the jars and the compiled programs are, and how to run them."""

    java: Path
    folder: Path

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
        """The command line that runs a class; `scratch` is for what the JVM leaves behind."""
        return [
            str(self.java),
            *JVM_OPTIONS,
            "-Xmx256m",
            f"-Djava.io.tmpdir={scratch}",
            f"-Dlog4j2.configurationFile={JAVA_FOLDER / 'log4j2.properties'}",
            "-Dpenstock.log.level=info",
            "-cp",
            f"{self.folder / 'classes'}:{self.folder / 'libs'}/*",
            main,
            *arguments,
        ]


class App:
    """A program that runs until it is stopped or killed, and can then be started again.

    What it prints since its last start is in `log`. Used as a context manager it never outlives
    the block.
    """

    def __init__(self, apps: KafkaApps, folder: Path, main: str, *arguments: str) -> None:
        self.log = folder / "app.log"
        self._folder = folder
        self._command = apps.command(main, *arguments, scratch=folder)
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
                cwd=self._folder,
            )

    def stop(self) -> None:
        """SIGTERM, and what the program does about it."""
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
        """kill -9, and the process is reaped."""
        process = self._running()
        process.kill()
        process.wait()
        self._process = None

    def wait_for(self, done: Callable[[], bool], what: str, deadline: float = 60) -> None:
        """Waits for what the program makes come true; it must not end before that."""

        def is_done_or_dead() -> bool:
            return self._running().poll() is not None or done()

        try:
            wait_until(is_done_or_dead, what, deadline)
        except KafkaToolError as late:
            raise KafkaToolError(f"{late}:\n{self._log_end()}") from None
        if (status := self._running().poll()) is not None:
            raise KafkaToolError(f"{what}: it ended with {status}:\n{self._log_end()}")

    def printed(self) -> list[str]:
        """The lines since its last start."""
        return self.log.read_text(errors="replace").splitlines()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise KafkaToolError("this program is not running")
        return self._process

    def _log_end(self) -> str:
        return "\n".join(self.printed()[-40:])


def write_properties(path: Path, settings: Mapping[str, str]) -> str:
    """A file of settings as Java reads them; gives back its path, for a command line."""
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)
