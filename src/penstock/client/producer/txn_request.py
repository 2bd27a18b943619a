"""A request of a producer's to a coordinator: what all of them have in common.

They are made and kept in order by the `TransactionManager`. A request is built for the version
that the node at hand speaks, when it is sent.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from penstock.client.errors import ClientError, error_of
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.fields import Message

if TYPE_CHECKING:
    from penstock.client.producer.txn_machine import TransactionMachine

R = TypeVar("R", bound=Message)

MOVED = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
"""Coordinators of old have the first for what now is the second."""
FINAL = (
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)


class Coordinator(IntEnum):
    """Who a request is for. The numbers are FindCoordinator's."""

    GROUP = 0
    TRANSACTION = 1


class Priority(IntEnum):
    """What goes first. A transaction ends after everything in it, and an epoch is raised then."""

    FIND_COORDINATOR = 0
    INIT_PRODUCER_ID = 1
    ADD_PARTITIONS_OR_OFFSETS = 2
    END_TXN = 3
    EPOCH_BUMP = 4


class TxnResult:
    """The outcome of a call that is still on its way. Whoever waits acknowledges it."""

    __slots__ = ("_waiters", "acked", "completed", "error", "operation")

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self.completed = False
        self.acked = False
        self.error: KafkaError | None = None
        self._waiters: list[Callable[[], None]] = []

    def done(self) -> None:
        self._complete(None)

    def fail(self, error: KafkaError) -> None:
        self._complete(error)

    def when_completed(self, call: Callable[[], None]) -> None:
        if self.completed:
            call()
        else:
            self._waiters.append(call)

    def _complete(self, error: KafkaError | None) -> None:
        if self.completed:
            return
        self.completed = True
        self.error = error
        waiters, self._waiters = self._waiters, []
        for call in waiters:
            call()


class TxnRequest(ABC, Generic[R]):
    """A request of a producer's to a coordinator, or to any broker."""

    request: ClassVar[type[Message]]
    is_end = False
    max_version: int | None = None

    def __init__(self, manager: "TransactionMachine", answer: type[R], result: TxnResult) -> None:
        self.manager = manager
        self.answer = answer
        self.result = result
        self.is_retry = False
        self.backoff_ms = manager.retry_backoff_ms

    @property
    @abstractmethod
    def priority(self) -> Priority: ...

    @property
    def coordinator(self) -> tuple[Coordinator, str] | None:
        """Whom to ask; None where any broker will do."""
        return Coordinator.TRANSACTION, self.manager.transactional_id or ""

    @abstractmethod
    def build(self, version: int) -> Message: ...

    @abstractmethod
    def handle(self, response: R) -> None:
        """Takes the answer over into the manager."""

    def disconnected(self) -> None:
        """There is no answer: whoever coordinates is looked for again, then it is asked again."""
        if (coordinator := self.coordinator) is not None:
            self.manager.look_up(*coordinator)
        self.again()

    def again(self) -> None:
        self.is_retry = True
        self.manager.enqueue(self)

    def moved(self) -> None:
        self.disconnected()

    def fail(self, error: KafkaError) -> None:
        self.result.fail(error)

    def fatal(self, error: KafkaError) -> None:
        self.result.fail(error)
        self.manager.to_fatal_error(error)

    def abortable(self, error: KafkaError) -> None:
        self.result.fail(error)
        self.manager.to_abortable_error(error)

    def abortable_if_possible(self, error: KafkaError) -> None:
        if self.manager.can_handle_abortable_error:
            self.manager.bump_after_error()
            self.abortable(error)
        else:
            self.fatal(error)

    def _common(self, code: ErrorCode) -> bool:
        """What coordinators of transactions answer to every request; False if `code` is other."""
        if code in MOVED:
            self.moved()
        elif code.retriable:
            self.again()
        elif code in FENCED:
            self.fatal(self.manager.fenced())
        elif code is ErrorCode.TRANSACTION_ABORTABLE:
            self.abortable(abort_this(code, self.result.operation))
        else:
            return False
        return True

    def _txn_error(self, code: ErrorCode) -> None:
        """What is no success of EndTxn and AddOffsetsToTxn."""
        if self._common(code):
            return
        if code in FINAL:
            self.fatal(self._final(code))
        elif code is ErrorCode.UNKNOWN_PRODUCER_ID:
            self.abortable_if_possible(
                abort_this(code, self.result.operation, "the coordinator has forgotten it")
            )
        else:
            self.fatal(self._unexpected(code))

    def _final(self, code: ErrorCode) -> ClientError:
        name = self.manager.transactional_id
        if code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return error_of(
                code,
                f"not authorized to use the transactional id {name!r}: allow this user WRITE and "
                "DESCRIBE on it, then make a new producer",
            )
        return error_of(
            code,
            f"{self.result.operation} of transactional id {name!r} was refused: the coordinator's "
            "state does not match this producer's; close it and make a new one",
        )

    def _unexpected(self, code: ErrorCode) -> ClientError:
        return error_of(
            code,
            f"{self.result.operation} failed with an unexpected {code.name}; "
            "close the producer and make a new one",
        )


def known(code: int) -> ErrorCode:
    """The error code, or UNKNOWN_SERVER_ERROR for one that is newer than this client."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def abort_this(code: ErrorCode, operation: str, why: str = "") -> ClientError:
    return error_of(
        code,
        f"{operation} failed{f', {why}' if why else ''}: abort the transaction "
        "(abort_transaction) and do it again",
    )


def group_forbidden(group: str) -> ClientError:
    return error_of(
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        f"not authorized to use the group {group!r}: abort the transaction, and allow this user "
        "READ on the group",
    )
