"""The states of a producer's transactions, and the transitions between them."""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class State(Enum):
    """The state of a producer. One without transactions is only initialized, or fails."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    COMMITTING_TRANSACTION = "committing"
    ABORTING_TRANSACTION = "aborting"
    ABORTABLE_ERROR = "in a transaction that can only be aborted"
    FATAL_ERROR = "failed permanently"


SOURCES: Final[Mapping[State, frozenset[State]]] = {
    State.UNINITIALIZED: frozenset({State.READY, State.ABORTABLE_ERROR}),
    State.INITIALIZING: frozenset(
        {State.UNINITIALIZED, State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION}
    ),
    State.READY: frozenset(
        {State.INITIALIZING, State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION}
    ),
    State.IN_TRANSACTION: frozenset({State.READY}),
    State.COMMITTING_TRANSACTION: frozenset({State.IN_TRANSACTION}),
    State.ABORTING_TRANSACTION: frozenset({State.IN_TRANSACTION, State.ABORTABLE_ERROR}),
    State.ABORTABLE_ERROR: frozenset(
        {
            State.IN_TRANSACTION,
            State.COMMITTING_TRANSACTION,
            State.ABORTABLE_ERROR,
            State.INITIALIZING,
        }
    ),
    State.FATAL_ERROR: frozenset(State),
}
"""The states from which each state can be entered."""


def illegal_call(state: State, call: str) -> str:
    """Returns the error message for a call that is not allowed in this state."""
    match call, state:
        case _, State.UNINITIALIZED:
            return f"{call}: call init_transactions first"
        case "init_transactions", _:
            return f"init_transactions: the producer is {state.value}, it is called once"
        case "begin_transaction", _:
            return f"begin_transaction: the producer is {state.value}; commit or abort first"
        case "commit_transaction" | "abort_transaction", _:
            return f"{call}: there is no transaction (the producer is {state.value})"
        case _:
            return f"{call}: the producer is {state.value}"
