"""A broker of Apache Kafka 3.9, the last release that registers in ZooKeeper."""

import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.support.history.process_end import end_process
from tests.support.kafka.broker import JAVA_DIRECTORY, KafkaParts

_STARTED = b"[KafkaServer id="


class KafkaProcess:
    """A broker process that was started, with its files beside its log."""

    def __init__(self, settings: Mapping[str, str], log: Path) -> None:
        parts = KafkaParts.find("zookeeper.kafka.version")
        properties = log.with_suffix(".properties")
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = parts.command("kafka.Kafka", str(properties), scratch=log.parent)
        # This release logs with log4j 1.
        log_option = f"-Dlog4j.configuration=file:{JAVA_DIRECTORY / 'log4j.properties'}"
        command.insert(command.index("-cp"), log_option)
        self._log = log
        self._log_start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=log.parent
            )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_until_ready(self) -> bool:
        """Returns False if the process ends before it is ready."""
        while not self._has_started():
            if not self.is_running:
                return False
            time.sleep(0.1)
        return True

    def _has_started(self) -> bool:
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return any(_STARTED in line and b"] started" in line for line in log)

    def command(self, text: str) -> None:
        """Ignores a command: the clock and the disk of Kafka are real."""

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self, number: signal.Signals, timeout_s: float = 60.0) -> None:
        """Ends the process with a signal, or kills it after the timeout."""
        end_process(self._process, number, timeout_s)
