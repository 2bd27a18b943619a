"""The records of `__transaction_state` and their bytes, as Kafka 4.3 writes them."""

from msgspec import Struct
from msgspec.structs import replace

from penstock.coordinator.machine import Skipped
from penstock.coordinator.txn.state import TransactionState
from penstock.core.errors import KafkaError
from penstock.core.internal_topics import TRANSACTION_STATE_TOPIC
from penstock.protocol.codec import decode
from penstock.protocol.stored.transaction_log import TransactionLogKey, TransactionLogValue
from penstock.protocol.versioned import encode_record_key, encode_versioned, read_prefix

_PREFIX = 2
_TRANSACTION = 0
_STATES = frozenset(TransactionState)
NO_EPOCH = -1


class TransactionRecord(Struct, frozen=True, gc=False):
    """The state of a transactional id; without a value the id is deleted."""

    key: TransactionLogKey
    value: TransactionLogValue | None
    value_version: int = 1
    """1, or 0 if the feature `transaction.version` is not finalized."""
    last_producer_epoch: int = NO_EPOCH
    """The previous epoch, which identifies a retry. It is not written: a coordinator that loads the
    record does not know it."""


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Returns key and value as they are appended; a value of None is a tombstone."""
    return encode_record_key(record.key), _encode_value(record.value, record.value_version)


def _encode_value(value: TransactionLogValue | None, version: int) -> bytes | None:
    if value is None:
        return None
    if version == 0:
        value = replace(
            value, previous_producer_id=-1, next_producer_id=-1, client_transaction_version=0
        )
    return encode_versioned(value, version)


def decode_record(
    key: bytes | None, value: bytes | memoryview | None
) -> TransactionRecord | Skipped:
    """Returns the record in these bytes; one that cannot be read is skipped, never an error."""
    if key is None:
        return Skipped(f"a record of {TRANSACTION_STATE_TOPIC} has no key")
    try:
        kind = read_prefix(key)
        if kind != _TRANSACTION:
            return Skipped(f"record type {kind} of {TRANSACTION_STATE_TOPIC} is unknown")
        name, _ = decode(TransactionLogKey, 0, key, _PREFIX)
        if value is None:
            return TransactionRecord(name, None)
        version = read_prefix(value)
        content, _ = decode(TransactionLogValue, version, value, _PREFIX)
    except KafkaError as error:
        return Skipped(f"a record of {TRANSACTION_STATE_TOPIC} cannot be read: {error.message}")
    if content.transaction_status not in _STATES:
        return Skipped(
            f"{name.transactional_id} is in transaction state {content.transaction_status}, "
            "which is unknown"
        )
    return TransactionRecord(name, content, version)


def tombstone(transactional_id: str) -> TransactionRecord:
    return TransactionRecord(TransactionLogKey(transactional_id), None)
