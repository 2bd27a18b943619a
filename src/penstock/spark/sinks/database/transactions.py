"""Runs transactions, and retries them after errors that may pass.

An action may be retried if it checks first whether an earlier attempt was committed: the response
to a COMMIT can be lost, and then only the database knows the outcome.
"""

import time
import traceback
from collections.abc import Callable
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from penstock.spark.errors import PipelineError
from penstock.spark.sinks.database.failures import ErrorKind, classify_error, explain, original

T = TypeVar("T")

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0


class Transactions:
    """Runs actions in transactions; raises all errors as `PipelineError`."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        patience_seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`name` names the query in messages; retries go on for `patience_seconds`."""
        self.engine = engine
        self._name = name
        self._patience = patience_seconds
        self._clock = clock
        self._sleep = sleep

    def run(self, operation: str, table: str, action: Callable[[Connection], T]) -> T:
        """Runs the action in one transaction; retries after deadlocks and lost connections."""

        def in_transaction() -> T:
            with self.engine.begin() as connection:
                return action(connection)

        return self.attempt(operation, table, in_transaction)

    def attempt(self, operation: str, table: str, action: Callable[[], T]) -> T:
        """Like `run`, for an action that has transactions of its own."""
        operation = f"{self._name}: {operation}"
        module = self.engine.dialect.dbapi
        assert module is not None
        since: float | None = None
        pause = FIRST_PAUSE
        while True:
            try:
                return action()
            except (DBAPIError, module.Error) as error:
                # The frames of PyMySQL's error keep a socket that could not connect open.
                traceback.clear_frames(original(error).__traceback__)
                kind = classify_error(error, self.engine)
                if kind is ErrorKind.LOCK_TIMEOUT:
                    raise LockTimeoutError(operation) from original(error)
                # SQLAlchemy's error contains the statement, which can be megabytes long.
                if kind is not ErrorKind.RETRIABLE:
                    raise explain(error, kind, operation, table) from original(error)
                now = self._clock()
                since = now if since is None else since
                if now + pause - since > self._patience:
                    raise PipelineError(
                        f"{operation}: the database has been unavailable for {now - since:.0f} s: "
                        f"{original(error)}",
                        remedy="start the pipeline again when the database is back: it continues "
                        "where it stopped",
                    ) from original(error)
            self._sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


class LockTimeoutError(PipelineError):
    """A lock was not released in time."""

    def __init__(self, operation: str) -> None:
        super().__init__(
            f"{operation}: another session holds a lock for too long. Another driver of this "
            "pipeline may be storing a batch: wait for it, or stop it. If its machine has failed, "
            "the server ends its session within minutes; an administrator can end it at once. "
            "Otherwise look for a long transaction on the result table"
        )
