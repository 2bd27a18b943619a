"""The options of commands that work on a node instead of connecting to it: its settings."""

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.options import argument, option, option_field

if TYPE_CHECKING:
    from penstock.broker.config.broker_config import BrokerConfig


@dataclass
class NodeOptions:
    """The settings of a node, as `penstock serve` takes them."""

    properties: Path | None = option_field(
        argument(
            "[SERVER.PROPERTIES]",
            default=None,
            help="The settings file of the broker. Without one: ./penstock-data.",
        )
    )
    overrides: list[str] | None = option_field(
        option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the broker, overriding the file. May be repeated.",
        )
    )

    def config(self, *more: str) -> "BrokerConfig":
        """Returns the settings, with `more` overrides. Raises ConfigError."""
        from penstock.broker.config.properties import load_broker_config

        overrides = [*(self.overrides or ()), *more]
        return load_broker_config(self.properties, overrides, hostname=socket.gethostname())
