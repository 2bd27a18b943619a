"""The states of a transaction, and which may follow which."""

from enum import IntEnum


class TransactionState(IntEnum):
    """The states, by their number in a record."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """On the way to being forgotten; never the state of anything here."""
    PREPARE_EPOCH_FENCE = 7
    """About to be aborted by somebody else than its producer; never the state of anything here,
    since that is decided in one step."""

    @property
    def state_name(self) -> str:
        """Its name in answers and filters, such as `PrepareCommit`."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_ending(self) -> bool:
        """How it ends is decided, and markers are being written."""
        return self in _ENDING

    @property
    def may_expire(self) -> bool:
        return self in _AT_REST


_S = TransactionState
_ENDING = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
_AT_REST = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})

VALID_PREVIOUS_STATES: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: _AT_REST,
    _S.ONGOING: _AT_REST | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: _AT_REST | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: _AT_REST,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}

STATES_BY_NAME = {state.state_name: state for state in TransactionState}
