"""The main program of a broker process that a supervisor has started."""

import logging
import socket
import sys
from collections.abc import Sequence

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.main import run_broker
from penstock.broker.supervisor.parent_pipe import (
    PARENT_FD,
    StartResult,
    receive_launch,
    report,
)
from penstock.cli.logging_setup import LogFormat, set_up_logging
from penstock.controller.metadata import Endpoint
from penstock.core.errors import KafkaError

logger = logging.getLogger(__name__)


def main() -> None:
    try:
        launch = receive_launch()
    except EOFError:
        sys.exit(1)
    log_format, log_level = sys.argv[1:]
    set_up_logging(LogFormat(log_format), log_level, launch.broker_id)
    is_ready = False

    def on_ready(endpoints: Sequence[Endpoint]) -> None:
        nonlocal is_ready
        is_ready = True
        report(
            StartResult(
                [endpoint.address for endpoint in endpoints],
                {endpoint.listener: endpoint.port for endpoint in endpoints},
            )
        )

    try:
        config = BrokerConfig.from_properties(launch.settings, hostname=socket.gethostname())
        run_broker(config, on_ready, parent_fd=PARENT_FD)
    except KafkaError as error:
        if is_ready:
            logger.error("%s", error.message)
        else:
            report(StartResult(error=error.message))
        sys.exit(1)


if __name__ == "__main__":
    main()
