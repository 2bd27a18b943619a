"""The threads of a workload: each repeats its step until it must stop, whatever errors occur."""

import threading
import time
from collections.abc import Callable
from random import Random

from confluent_kafka import KafkaException

from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from tests.support.history.history import HistoryRecorder, RecordId

PLAIN = "plain"
"""Records of idempotent producers."""
TRANSACTIONAL = "transactional"
COPIES = "copies"
"""Each record of PLAIN, copied in transactions together with the position in PLAIN."""
PARTITIONS = 3
TOPICS = (PLAIN, TRANSACTIONAL, COPIES)
CLIENT_ERRORS = (KafkaError, KafkaException)
CALL_TIMEOUT_S = 20.0
"""Of a call that is repeated when it fails."""
JOIN_TIMEOUT_S = 180.0
_RETRY_DELAY_S = 0.2


class RestartClientError(Exception):
    """The client cannot continue, and must be replaced by a new one."""


class Worker:
    """A thread that runs a client. Subclasses implement `run_client`.

    Every client gets a name of its own, which it keeps for its records: an old request of a client
    that has failed may still arrive after requests of its successor.
    """

    def __init__(self, name: str, bootstrap: str, recorder: HistoryRecorder, seed: int) -> None:
        self.bootstrap = bootstrap
        self.recorder = recorder
        self.rng = Random(f"{seed} {name}")
        self.failure: BaseException | None = None
        self._base_name = name
        self._clients = 0
        self._numbers = 0
        self._is_replaced = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def name(self) -> str:
        """The name of the current client."""
        return f"{self._base_name}.{self._clients}"

    @property
    def base_name(self) -> str:
        return self._base_name

    @property
    def is_stopping(self) -> bool:
        """Whether the current client must end."""
        return self._is_replaced or self._stopping.is_set()

    def start(self) -> None:
        self._thread.start()

    def replace_client(self) -> None:
        """Lets a new client continue the work of the current one."""
        self._is_replaced = True

    def stop(self) -> None:
        """Lets the worker finish what it has begun."""
        self._stopping.set()

    def join(self) -> None:
        """Waits for the end; raises the exception that ended the worker early."""
        self._thread.join(JOIN_TIMEOUT_S)
        assert not self._thread.is_alive(), f"{self._base_name} does not stop"
        if self.failure is not None:
            raise self.failure

    def pause(self, seconds: float) -> None:
        self._stopping.wait(seconds)

    def pause_client(self, seconds: float) -> None:
        """Waits so long, or until the current client must end."""
        deadline = time.monotonic() + seconds
        while not self.is_stopping and time.monotonic() < deadline:
            self.pause(0.1)

    def next_record(self) -> RecordId:
        self._numbers += 1
        return RecordId(self.name, self._numbers)

    def value_of(self, record: RecordId) -> bytes:
        """Returns the value; a third of them is so large that logs have several segments."""
        return record.value(self.rng.choice((0, 0, self.rng.randint(0, 4000))))

    def random_partition(self, topic: str) -> TopicPartition:
        return TopicPartition(topic, self.rng.randrange(PARTITIONS))

    def run_client(self) -> None:
        """Runs one client until the worker must stop, or raises an error of the client."""
        raise NotImplementedError

    def retry(self, call: Callable[[], object], is_retriable: Callable[[Exception], bool]) -> None:
        """Repeats a call while its error says that it may be repeated."""
        deadline = time.monotonic() + JOIN_TIMEOUT_S / 2
        while True:
            try:
                call()
            except CLIENT_ERRORS as error:
                if not is_retriable(error) or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_DELAY_S)
            else:
                return

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._clients += 1
                self._is_replaced = False
                try:
                    self.run_client()
                except (*CLIENT_ERRORS, RestartClientError) as error:
                    self.recorder.note(f"{self.name} is replaced: {error!r}")
                    self.pause(_RETRY_DELAY_S)
        except BaseException as error:  # noqa: BLE001 - `join` raises it
            self.failure = error
            self.recorder.note(f"{self.name} has failed: {error!r}")
