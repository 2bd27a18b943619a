"""The memory of a broker in its own process, and a client that uses it as usual."""

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.records.read import read_records
from tests.support.broker.in_process import WireClient
from tests.support.broker.process import PenstockBroker
from tests.support.protocol.admin import fetch
from tests.support.protocol.requests import make_topic, produce_values

RESET_PEAK = "5"


def connect(broker: PenstockBroker) -> WireClient:
    host, port = broker.bootstrap.rsplit(":", 1)
    return WireClient((host, int(port)))


class PeakMemory:
    """The resident memory that a process takes in addition, at most, from the construction on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        Path(f"/proc/{pid}/clear_refs").write_text(RESET_PEAK)
        self._before_kib = self._peak_kib()

    @property
    def mib(self) -> float:
        return (self._peak_kib() - self._before_kib) / 1024

    def _peak_kib(self) -> int:
        for line in Path(f"/proc/{self._pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
        raise AssertionError("the kernel reports no peak of the resident memory")


class Canary:
    """A well-behaved client: produces and fetches in a thread until the end of the block."""

    def __init__(self, broker: PenstockBroker, topic: str = "canary") -> None:
        self._client = connect(broker)
        self._topic = topic
        make_topic(self._client, topic)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._error: Exception | None = None
        self.seconds: list[float] = []
        """How long each pair of a Produce and a Fetch took."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._client.close()
        if error is None and self._error is not None:
            raise self._error

    def wait_for(self, count: int) -> None:
        """Waits until so many pairs have been served."""
        while len(self.seconds) < count and self._error is None:
            time.sleep(0.01)

    def percentile(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)]

    def _run(self) -> None:
        try:
            while not self._stopping.wait(0.005):
                started = time.perf_counter()
                value = b"%d" % len(self.seconds)
                offset = produce_values(self._client, self._topic, value)
                data = fetch(self._client, self._topic, offset)
                assert [record.value for record in read_records(data.records)] == [value]
                self.seconds.append(time.perf_counter() - started)
        except Exception as error:  # noqa: BLE001  # raised by the thread of the test
            self._error = error
