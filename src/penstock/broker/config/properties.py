"""Reads the broker's settings from a `server.properties` file and `--set` options."""

from collections.abc import Iterable
from pathlib import Path

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.settings import ConfigError
from penstock.core.java_properties import PropertiesSyntaxError, Property, parse_properties
from penstock.net.jaas_file import login_of_jaas_file
from penstock.security.jaas_file import SETTING, server_sections


def load_broker_config(
    path: Path | None, overrides: Iterable[str] = (), *, hostname: str = "localhost"
) -> BrokerConfig:
    """Returns the settings of a file, or the defaults, with `key=value` overrides.

    SASL listeners without `sasl.jaas.config` get their entries of the JAAS file, if there is one.
    A ConfigError has one line with the location of the setting and what to do.
    """
    properties = {} if path is None else read_properties(path)
    options = parse_overrides(overrides)
    texts = {name: entry.value for name, entry in properties.items()} | options
    try:
        config = BrokerConfig.from_properties(texts, hostname=hostname)
        logins = _logins_of_jaas_file(config)
        return BrokerConfig.from_properties(texts | logins, hostname=hostname) if logins else config
    except ConfigError as error:
        if error.name in options:
            location = "--set "
        elif error.name in properties:
            location = f"{path}, line {properties[error.name].line}: "
        else:
            raise
        subject = location + error.subject
        raise ConfigError(error.cause, error.name, subject=subject, remedy=error.remedy) from None


def _logins_of_jaas_file(config: BrokerConfig) -> dict[str, str]:
    """Returns the `sasl.jaas.config` of each listener and mechanism that has none in `config`."""
    logins = {}
    file = config.text(SETTING)
    for spec in config.listeners:
        if not spec.protocol.sasl:
            continue
        for mechanism in config.sasl_mechanisms(spec.name):
            if config.listener_setting(spec.name, "sasl.jaas.config", mechanism) is None:
                login = login_of_jaas_file(server_sections(spec.name), mechanism, file)
                if login is not None:
                    prefix = f"listener.name.{spec.name.lower()}.{mechanism.lower()}"
                    logins[f"{prefix}.sasl.jaas.config"] = login
    return logins


def read_properties(path: Path) -> dict[str, Property]:
    """Returns the settings of a file in Java's syntax, each with its line."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", subject=str(path)) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # the encoding of properties files in Java
    try:
        return parse_properties(text)
    except PropertiesSyntaxError as error:
        raise ConfigError(
            str(error),
            subject=f"{path}, line {error.line}",
            remedy="write \\\\u for a backslash and a u",
        ) from None


def parse_overrides(options: Iterable[str]) -> dict[str, str]:
    """Returns the settings of `--set key=value` options; the last one of a key counts."""
    settings: dict[str, str] = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not equals or not name.strip():
            raise ConfigError(
                "must be key=value, such as num.partitions=3", subject=f"--set {option}"
            )
        settings[name.strip()] = text.strip()
    return settings
