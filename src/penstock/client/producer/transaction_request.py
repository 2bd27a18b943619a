"""The base class of a producer's requests to coordinators.

The `TransactionManager` creates them and keeps them in order. A request is built when it is sent,
for the version that the coordinator supports.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.client.coordinators import CoordinatorKind
from penstock.client.errors import ClientError, error_of
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.fields import Message

if TYPE_CHECKING:
    from penstock.client.producer.transaction_manager import TransactionManager

R = TypeVar("R", bound=Message)

COORDINATOR_MOVED = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
"""Older coordinators respond with the first."""
FATAL_ERRORS = (
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)


class Priority(IntEnum):
    """The order of requests: a transaction ends after all its parts, then the epoch is bumped."""

    FIND_COORDINATOR = 0
    INIT_PRODUCER_ID = 1
    ADD_PARTITIONS_OR_OFFSETS = 2
    END_TXN = 3
    EPOCH_BUMP = 4


class TxnResult:
    """The result of a user's call. The caller acknowledges it once it has seen the outcome."""

    __slots__ = ("_callbacks", "error", "is_acknowledged", "is_done", "operation")

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self.is_done = False
        self.is_acknowledged = False
        self.error: KafkaError | None = None
        self._callbacks: list[Callable[[], None]] = []

    def complete(self) -> None:
        self._set(None)

    def fail(self, error: KafkaError) -> None:
        self._set(error)

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        if self.is_done:
            callback()
        else:
            self._callbacks.append(callback)

    def _set(self, error: KafkaError | None) -> None:
        if self.is_done:
            return
        self.is_done = True
        self.error = error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class TxnRequest(ABC, Generic[R]):
    """A request of a producer to a coordinator, or to any broker."""

    response_type: type[R]
    priority: Priority
    is_end = False
    max_version: int | None = None

    def __init__(self, manager: "TransactionManager", result: TxnResult | None = None) -> None:
        """`result` is that of a user's call, if the request is a further step of it."""
        self.manager = manager
        self.owner = manager.producer
        """The producer id and epoch of the request."""
        self.result = result or TxnResult(type(self).__name__)
        self.is_retry = False
        self.backoff_ms = manager.retry_backoff_ms

    @property
    def coordinator(self) -> tuple[CoordinatorKind, str] | None:
        """The coordinator to send the request to; None for any broker."""
        return CoordinatorKind.TRANSACTION, self.manager.transactional_id or ""

    @abstractmethod
    def build(self, version: int) -> Message: ...

    @abstractmethod
    def handle(self, response: R) -> None:
        """Applies the response to the manager."""

    def handle_disconnect(self) -> None:
        """Looks up the coordinator again and retries, because there is no response."""
        if (coordinator := self.coordinator) is not None:
            self.manager.look_up_coordinator(*coordinator)
        self.retry()

    def retry(self) -> None:
        self.is_retry = True
        self.manager.enqueue(self)

    def fail(self, error: KafkaError) -> None:
        self.result.fail(error)

    def fail_fatally(self, error: KafkaError) -> None:
        self.result.fail(error)
        self.manager.to_fatal_error(error)

    def fail_abortable(self, error: KafkaError) -> None:
        self.result.fail(error)
        self.manager.to_abortable_error(error)

    def fail_abortable_if_possible(self, error: KafkaError) -> None:
        if self.manager.can_handle_abortable_error:
            self.manager.require_epoch_bump()
            self.fail_abortable(error)
        else:
            self.fail_fatally(error)

    def _handle_common_error(self, code: ErrorCode) -> bool:
        """Handles the errors that every request can get; returns False for other codes."""
        if code in COORDINATOR_MOVED:
            self.handle_disconnect()
        elif code.retriable:
            self.retry()
        elif code in FENCED:
            self.fail_fatally(self.manager.fenced_error())
        elif code is ErrorCode.TRANSACTION_ABORTABLE:
            self.fail_abortable(abortable_error(code, self.result.operation))
        else:
            return False
        return True

    def _handle_transaction_error(self, code: ErrorCode) -> None:
        """Handles an error of EndTxn or AddOffsetsToTxn."""
        if self._handle_common_error(code):
            return
        if code in FATAL_ERRORS:
            self.fail_fatally(self._rejected_error(code))
        elif code is ErrorCode.UNKNOWN_PRODUCER_ID:
            self.fail_abortable_if_possible(
                abortable_error(code, self.result.operation, "the coordinator has forgotten it")
            )
        else:
            self.fail_fatally(self._unexpected_error(code))

    def _rejected_error(self, code: ErrorCode) -> ClientError:
        name = self.manager.transactional_id
        if code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return error_of(
                code,
                f"not authorized to use the transactional id {name!r}: allow this user WRITE and "
                "DESCRIBE on it, then create a new producer",
            )
        return error_of(
            code,
            f"{self.result.operation} of transactional id {name!r} was rejected: the "
            "coordinator's state does not match this producer's; close it and create a new one",
        )

    def _unexpected_error(self, code: ErrorCode) -> ClientError:
        return error_of(
            code,
            f"{self.result.operation} failed with an unexpected {code.name}; "
            "close the producer and create a new one",
        )


def abortable_error(code: ErrorCode, operation: str, reason: str = "") -> ClientError:
    return error_of(
        code,
        f"{operation} failed{f', {reason}' if reason else ''}: abort the transaction "
        "(abort_transaction) and do it again",
    )


def group_authorization_error(group: str) -> ClientError:
    return error_of(
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        f"not authorized to use the group {group!r}: abort the transaction, and allow this user "
        "READ on the group",
    )
