"""From a `server.properties` file and `--set` options to the broker's settings."""

from collections.abc import Iterable
from pathlib import Path

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.settings import ConfigError
from penstock.core.java_properties import PropertiesSyntaxError, Property, parse_properties


def load_broker_config(
    path: Path | None, overrides: Iterable[str] = (), *, hostname: str = "localhost"
) -> BrokerConfig:
    """The settings of a file (none: defaults only), with `key=value` overrides on top.

    ConfigError is one line that says where the setting stands, and what to do about it.
    """
    found = {} if path is None else read_properties(path)
    options = parse_overrides(overrides)
    texts = {name: each.value for name, each in found.items()} | options
    try:
        return BrokerConfig.from_properties(texts, hostname=hostname)
    except ConfigError as error:
        if error.name in options:
            raise ConfigError(f"--set {error.message}", error.name) from None
        if error.name in found:
            place = f"{path}, line {found[error.name].line}"
            raise ConfigError(f"{place}: {error.message}", error.name) from None
        raise


def read_properties(path: Path) -> dict[str, Property]:
    """The settings of a file in Java's syntax, each with its line."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # Java's own encoding of such files
    try:
        return parse_properties(text)
    except PropertiesSyntaxError as error:
        raise ConfigError(
            f"{path}, line {error.line}: {error}; write \\\\u for a backslash and a u"
        ) from None


def parse_overrides(options: Iterable[str]) -> dict[str, str]:
    """What `--set key=value` says; the last one counts where a key comes twice."""
    found: dict[str, str] = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--set {option}: must be key=value, such as num.partitions=3")
        found[name.strip()] = text.strip()
    return found
