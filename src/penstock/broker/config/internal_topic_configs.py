"""The settings with which the broker creates its internal topics."""

from collections.abc import Mapping

from penstock.broker.config.broker_config import BrokerConfig
from penstock.core.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC


def internal_topic_configs(config: BrokerConfig) -> Mapping[str, Mapping[str, str]]:
    """Returns the settings of each internal topic by its name."""
    return {
        GROUP_METADATA_TOPIC: {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.int("offsets.topic.segment.bytes")),
        },
        TRANSACTION_STATE_TOPIC: {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.int("transaction.state.log.min.isr")),
            "segment.bytes": str(config.int("transaction.state.log.segment.bytes")),
            "unclean.leader.election.enable": "false",
        },
    }
