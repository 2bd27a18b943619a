"""JAAS files: sections of login modules, which Java programs name in KAFKA_OPTS (X2)."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.core.errors import ErrorCode, KafkaError
from penstock.security.jaas import (
    KERBEROS_LOGIN_MODULE,
    OAUTHBEARER_LOGIN_MODULE,
    PLAIN_LOGIN_MODULE,
    SCRAM_LOGIN_MODULE,
    LoginModule,
)

CLIENT_SECTION: Final = "KafkaClient"
SERVER_SECTION: Final = "KafkaServer"
SETTING: Final = "java.security.auth.login.config"
"""A property of the JVM in Kafka. Brokers have it as a setting too."""
VARIABLE: Final = "KAFKA_OPTS"
_OPTION: Final = f"-D{SETTING}="
_MODULES: Final = {
    "PLAIN": PLAIN_LOGIN_MODULE,
    "SCRAM-SHA-256": SCRAM_LOGIN_MODULE,
    "SCRAM-SHA-512": SCRAM_LOGIN_MODULE,
    "OAUTHBEARER": OAUTHBEARER_LOGIN_MODULE,
    "GSSAPI": KERBEROS_LOGIN_MODULE,
}


def server_sections(listener: str) -> tuple[str, str]:
    """Returns the sections of a broker's listener; the first one that exists counts."""
    return f"{listener.lower()}.{SERVER_SECTION}", SERVER_SECTION


def jaas_file_path(environment: Mapping[str, str]) -> str | None:
    """Returns the file that `-Djava.security.auth.login.config=…` in KAFKA_OPTS names."""
    try:
        options = shlex.split(environment.get(VARIABLE, ""))
    except ValueError as error:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, str(error), subject=VARIABLE, remedy="correct its quotes"
        ) from None
    paths = [option.removeprefix(_OPTION) for option in options if option.startswith(_OPTION)]
    # A second = tells Java to use no other file.
    return paths[-1].removeprefix("=").removeprefix("file:") if paths else None


def find_login(
    present: Mapping[str, Sequence[LoginModule]], sections: Sequence[str], mechanism: str
) -> str | None:
    """Returns what a file has for a mechanism, as a `sasl.jaas.config`; None if it has nothing.

    `present` are the sections of the file, of which the first one in `sections` counts.
    """
    section = next((present[name] for name in sections if name in present), ())
    name = _MODULES.get(mechanism.upper())
    return next((_config_text(module) for module in section if module.name == name), None)


def _config_text(module: LoginModule) -> str:
    options = "".join(f" {name}={_quoted(value)}" for name, value in module.options.items())
    return f"{module.name} {module.flag}{options};"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r") + '"'
