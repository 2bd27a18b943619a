"""Routes: how requests of one API and version are decoded and handled, and groups of APIs."""

from typing import Final, NamedTuple

from penstock.broker.handlers.table import Handler
from penstock.broker.metrics.request_metrics import ApiMetrics
from penstock.protocol.api_key import ApiKey
from penstock.protocol.decoder import Decoder
from penstock.protocol.fields import Message
from penstock.protocol.messages.fetch import FetchRequest

BETWEEN_BROKERS: Final = frozenset(
    (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.ALTER_PARTITION,
    )
)
"""APIs of brokers with elements for each partition."""
EXEMPT_FROM_QUOTAS: Final = BETWEEN_BROKERS | {ApiKey.CONTROLLED_SHUTDOWN, ApiKey.WRITE_TXN_MARKERS}
"""APIs of brokers that would delay the cluster if they were throttled."""
WITHOUT_METADATA: Final = frozenset(
    (
        *BETWEEN_BROKERS,
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.FETCH,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.WRITE_TXN_MARKERS,
    )
)
"""APIs that a starting broker serves before it knows the cluster."""


class Route(NamedTuple):
    """How requests of one API and version are decoded and handled."""

    api_key: ApiKey
    has_client_id: bool
    """False for ControlledShutdown version 0, of brokers before Kafka 0.9."""
    flexible: bool
    decode: Decoder[Message]
    handle: Handler
    metrics: ApiMetrics


def is_follower_fetch(body: FetchRequest) -> bool:
    """Whether a broker fetches, and not a consumer."""
    return body.replica_id >= 0 or body.replica_state.replica_id >= 0
