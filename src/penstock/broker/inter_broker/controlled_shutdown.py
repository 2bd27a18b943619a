"""Controlled shutdown: a stopping broker has the controller move its leaderships away (R8)."""

import asyncio
import logging
from typing import Final

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.inter_broker.controller_client import ControllerClient
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

logger = logging.getLogger(__name__)

_POLL_S: Final = 0.2
"""The interval of the requests for the partitions that still have no other leader."""


async def shut_down(
    config: BrokerConfig, broker_epoch: int, client: ControllerClient, clock: Clock
) -> None:
    """Returns when other brokers lead all partitions that they can lead.

    Gives up after `controlled.shutdown.max.retries` times `controlled.shutdown.retry.backoff.ms`,
    with a warning: the partitions have no leader until the controller notices that the broker is
    gone.
    """
    patience_ms = config.int("controlled.shutdown.max.retries") * config.int(
        "controlled.shutdown.retry.backoff.ms"
    )
    deadline_ms = clock.monotonic_ms() + patience_ms
    request = ControlledShutdownRequest(config.int("node.id"), broker_epoch)
    problem = ""
    while (remaining_ms := deadline_ms - clock.monotonic_ms()) > 0:
        try:
            response = await client.send(
                request, ControlledShutdownResponse, timeout_ms=remaining_ms
            )
        except KafkaError as error:
            problem = error.message
            break
        if response.error_code:
            problem = ErrorCode(response.error_code).name
            break
        if not response.remaining_partitions:
            return
        partitions = ", ".join(
            f"{partition.topic_name}-{partition.partition_index}"
            for partition in response.remaining_partitions[:5]
        )
        problem = f"no other broker can lead {partitions} and others"
        await asyncio.sleep(_POLL_S)
    logger.warning(
        "the broker stops although its leaderships could not be moved to other brokers: %s", problem
    )
