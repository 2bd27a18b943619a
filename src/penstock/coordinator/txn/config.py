"""The settings of the transaction coordinator, under Kafka's names."""

from msgspec import Struct

WRITE_RETRY_MS = 1000
"""The delay until a timer fires again whose records could not be written."""


class TransactionConfig(Struct, frozen=True):
    """The settings of the transaction coordinator. The host may replace them at any time."""

    transactional_id_expiration_ms: int = 604_800_000
    transaction_max_timeout_ms: int = 900_000
    abort_timed_out_cleanup_interval_ms: int = 10_000
    """`transaction.abort.timed.out.transaction.cleanup.interval.ms`"""
    remove_expired_cleanup_interval_ms: int = 3_600_000
    """`transaction.remove.expired.transaction.cleanup.interval.ms`"""
    transaction_version: int = 2
    """The finalized level of the feature `transaction.version`, 0 to 2."""
    two_phase_commit_enable: bool = False
    """`transaction.two.phase.commit.enable`"""
    group_partitions: int = 50
    """The number of partitions of `__consumer_offsets`."""
