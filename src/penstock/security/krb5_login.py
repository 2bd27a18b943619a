"""Java's Krb5LoginModule in `sasl.jaas.config`: keytab, ticket cache and principal (X2).

Options that contradict each other are refused as Java refuses them. Options that only Java's
library has a use for (storeKey, doNotPrompt, isInitiator, renewTGT, debug) have no effect.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.core.errors import ErrorCode, KafkaError
from penstock.security.jaas import KERBEROS_LOGIN_MODULE, login_module

SERVICE_NAME_SETTING: Final = "sasl.kerberos.service.name"
JAAS_SETTING: Final = "sasl.jaas.config"
EXAMPLE: Final = (
    f"{KERBEROS_LOGIN_MODULE} required useKeyTab=true storeKey=true "
    'keyTab="/etc/kafka.keytab" principal="kafka/host@REALM";'
)
ANY_PRINCIPAL: Final = "*"
"""The principal of a server that accepts tickets for every principal in its keytab."""


class Krb5Login(NamedTuple):
    """Where the tickets or keys of a principal are."""

    keytab: str | None = None
    principal: str | None = None
    uses_cache: bool = True
    """Whether the tickets of the cache are used; with a keytab too, they come first."""
    cache: str | None = None
    """The ticket cache; None is the default one of the user."""
    service_name: str | None = None


def parse_krb5_login(jaas_config: str | None) -> Krb5Login:
    """Returns the login of a client; without a configuration, with the user's ticket cache.

    Raises KafkaError, which names `sasl.jaas.config`, if it is not valid.
    """
    if not jaas_config:
        return Krb5Login()
    options = login_module(jaas_config, KERBEROS_LOGIN_MODULE).options
    uses_keytab = _is_true(options, "useKeyTab")
    uses_cache = _is_true(options, "useTicketCache")
    keytab = options.get("keyTab", "").removeprefix("FILE:") or None
    principal = options.get("principal") or None
    if keytab is not None and not uses_keytab:
        raise _invalid("it has a keyTab, but not useKeyTab=true", "add useKeyTab=true")
    if options.get("ticketCache") and not uses_cache:
        raise _invalid(
            "it has a ticketCache, but not useTicketCache=true", "add useTicketCache=true"
        )
    if uses_keytab:
        if keytab is None:
            raise _invalid("it has useKeyTab=true, but no keyTab", 'add keyTab="/path/to/keytab"')
        if principal is None:
            raise _invalid("it has a keyTab, but no principal", 'add principal="name@REALM"')
    elif not uses_cache:
        raise _invalid(
            "it has neither useKeyTab=true nor useTicketCache=true, and nobody can be asked for a "
            "password",
            f"write {EXAMPLE}, or useTicketCache=true after kinit",
        )
    return Krb5Login(
        keytab,
        principal,
        uses_cache,
        options.get("ticketCache") or None,
        options.get("serviceName") or None,
    )


def parse_server_login(jaas_config: str | None) -> tuple[str, str]:
    """Returns the keytab of a broker and its principal in it.

    Raises KafkaError, which names `sasl.jaas.config`, if there are none.
    """
    if not jaas_config:
        raise _invalid(
            "it is missing, and names the keytab and the principal of the broker for GSSAPI",
            f"set it to {EXAMPLE}, or name other mechanisms in sasl.enabled.mechanisms",
        )
    login = parse_krb5_login(jaas_config)
    if login.keytab is None or login.principal is None:
        raise _invalid("a broker needs a keytab, not a ticket cache", f"set it to {EXAMPLE}")
    return login.keytab, login.principal


def service_name(setting: str | None, login: Krb5Login) -> str:
    """Returns the first part of the brokers' principals, which a setting or the login names.

    Raises KafkaError if neither does, or if they differ, like Kafka.
    """
    name = setting or login.service_name
    if not name:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "is missing: it is the first part of the principal of the brokers",
            subject=SERVICE_NAME_SETTING,
            remedy="set it to kafka if their principals are kafka/host@REALM",
        )
    if login.service_name not in (None, name):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"is {name}, but serviceName in {JAAS_SETTING} is {login.service_name}",
            subject=SERVICE_NAME_SETTING,
            remedy="remove one of them",
        )
    return name


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").lower() == "true"


def _invalid(cause: str, remedy: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, cause, subject=JAAS_SETTING, remedy=remedy)
