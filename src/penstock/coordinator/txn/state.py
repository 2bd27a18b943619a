"""The states of a transaction and their valid transitions."""

from enum import IntEnum


class TransactionState(IntEnum):
    """The state of a transaction; the value is its number in a record."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """About to be deleted; never used here."""
    PREPARE_EPOCH_FENCE = 7
    """About to be aborted on behalf of another client; never used here, since that is one step."""

    @property
    def state_name(self) -> str:
        """The name in responses and filters, such as `PrepareCommit`."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_ending(self) -> bool:
        """Whether the end is decided and markers are being written."""
        return self in _ENDING

    @property
    def can_expire(self) -> bool:
        return self in _IDLE


_S = TransactionState
_ENDING = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
_IDLE = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})

VALID_PREVIOUS_STATES: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: _IDLE,
    _S.ONGOING: _IDLE | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: _IDLE | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: _IDLE,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}

STATES_BY_NAME = {state.state_name: state for state in TransactionState}
