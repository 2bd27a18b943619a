"""Records that are sent to a topic while its partitions move."""

import threading
from types import TracebackType
from typing import Self

from penstock.client import Producer, RecordFuture

_PAUSE_S = 0.02
_RESULT_TIMEOUT_S = 60.0


class SteadyLoad:
    """Sends records with acks=all until the block ends; then every one must be acknowledged."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._futures: list[RecordFuture] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send, name=f"load of {topic}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()
        if kind is None:
            assert self._futures
            for future in self._futures:
                future.result(0)

    def _send(self) -> None:
        with Producer(bootstrap_servers=self._bootstrap, acks="all") as producer:
            while not self._stopping.wait(_PAUSE_S):
                number = len(self._futures)
                future = producer.send(
                    self._topic, b"%0100d" % number, partition=number % self._partitions
                )
                self._futures.append(future)
            producer.flush(_RESULT_TIMEOUT_S)
