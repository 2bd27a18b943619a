"""Limits of sizes that do not fit each other, named when the broker starts (P7)."""

from penstock.broker.config.values import BrokerValues

_DEFAULT_EXCESS = 12
"""By how much Kafka's default of message.max.bytes exceeds that of replica.fetch.max.bytes."""


def replication_warnings(values: BrokerValues) -> list[str]:
    """Returns why records are replicated or fetched more slowly than they should be.

    Nothing stops: a batch that is larger than a limit of a fetch is still fetched, alone.
    """
    warnings: list[str] = []
    message = values.int("message.max.bytes")
    replica = values.int("replica.fetch.max.bytes")
    response = values.int("replica.fetch.response.max.bytes")
    consumer = values.int("fetch.max.bytes")
    if message > replica + _DEFAULT_EXCESS:
        warnings.append(
            f"message.max.bytes: batches of up to {message} bytes are accepted, but followers "
            f"fetch {replica} bytes of a partition at once (replica.fetch.max.bytes): larger ones "
            "are replicated one by one; raise replica.fetch.max.bytes"
        )
    if replica > response:
        warnings.append(
            f"replica.fetch.max.bytes: {replica} has no effect above "
            f"replica.fetch.response.max.bytes, {response}; raise that, too"
        )
    if message > consumer:
        warnings.append(
            f"message.max.bytes: batches of up to {message} bytes are accepted, but consumers get "
            f"at most {consumer} bytes at once (fetch.max.bytes): larger batches are sent one by "
            "one; raise fetch.max.bytes"
        )
    return warnings
