"""Transactions that are tried again where that is safe.

An action is safe to be tried again if it finds out by itself, at its start, whether an earlier try
was committed: the answer to a COMMIT can be lost, and then nobody but the database knows.
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
    """Runs actions in transactions; errors come out as `PipelineError`."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        patience_seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`name` is what messages call the query; a database may be away for `patience_seconds`."""
        self.engine = engine
        self._name = name
        self._patience = patience_seconds
        self._clock = clock
        self._sleep = sleep

    def run(self, doing: str, table: str, action: Callable[[Connection], T]) -> T:
        """In one transaction, again and again while the database is away or has deadlocks."""

        def in_transaction() -> T:
            with self.engine.begin() as connection:
                return action(connection)

        return self.attempt(doing, table, in_transaction)

    def attempt(self, doing: str, table: str, action: Callable[[], T]) -> T:
        """The same, for an action that has transactions of its own."""
        doing = f"{self._name}: {doing}"
        module = self.engine.dialect.dbapi
        assert module is not None
        since: float | None = None
        pause = FIRST_PAUSE
        while True:
            try:
                return action()
            except (DBAPIError, module.Error) as error:
                # PyMySQL leaves a socket that could not connect in a frame that its error keeps.
                traceback.clear_frames(original(error).__traceback__)
                meaning = classify_error(error, self.engine)
                if meaning is ErrorKind.LOCKED:
                    raise LockTimeoutError(doing) from original(error)
                # The statement that SQLAlchemy's error shows can be megabytes long.
                if meaning is not ErrorKind.TRY_AGAIN:
                    raise explain(error, meaning, doing, table) from original(error)
                now = self._clock()
                since = now if since is None else since
                if now + pause - since > self._patience:
                    raise PipelineError(
                        f"{doing}: the database stays away or refuses for "
                        f"{now - since:.0f} s: {original(error)}. Start the pipeline again when "
                        "the database is back: it goes on where it was"
                    ) from original(error)
            self._sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


class LockTimeoutError(PipelineError):
    """A lock was not to be had in time."""

    def __init__(self, doing: str) -> None:
        super().__init__(
            f"{doing}: somebody else holds a lock for too long. Another driver of this pipeline "
            "may be in the middle of a batch: wait for it, or stop it. If its machine is gone, "
            "the server ends its session within minutes; an administrator can do so at once. "
            "Otherwise look for a long transaction on the result table"
        )
