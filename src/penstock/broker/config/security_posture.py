"""The security posture of a configuration: who can get in where, as whom, with which rights (X3).

`describe_security` explains it for `penstock doctor --security`; `security_warnings` finds settings
that look safe and are not, which the broker logs when it starts. Settings that would make Penstock
admit other clients than Kafka does are refused (`check_security`).
"""

import ipaddress
from collections.abc import Iterable
from itertools import starmap
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from penstock.broker.config.delegation_token_config import describe_tokens, token_problems
from penstock.broker.config.listeners import ListenerSpec
from penstock.broker.config.security_warning import SecurityWarning
from penstock.broker.config.settings import ConfigError
from penstock.broker.config.tls_posture import client_auth, tls_warnings
from penstock.broker.config.values import BrokerValues
from penstock.broker.config.zookeeper_posture import describe_zookeeper, zookeeper_warnings
from penstock.core.errors import KafkaError
from penstock.security.acl_authorizer import parse_super_users
from penstock.security.jaas import plain_users
from penstock.security.kerberos_names import RULES_SETTING, rules_of_any_realm
from penstock.security.krb5_login import JAAS_SETTING, parse_server_login
from penstock.security.principal import ANONYMOUS
from penstock.security.sasl.gssapi import GSSAPI
from penstock.security.sasl.oauthbearer import (
    HANDLER_SETTING,
    JWKS_URL_SETTING,
    OAUTHBEARER,
    UNSECURED_VALIDATOR_CLASS,
    VALIDATOR_CLASSES,
    is_unsecured,
    jaas_options,
)
from penstock.security.sasl.plain import PLAIN
from penstock.security.scram_credential import ScramMechanism

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

_DEFAULT_PRINCIPAL_BUILDERS: Final = (
    "",
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
)
_JAVA_CLASSES: Final = {
    "principal.builder.class": "the names of clients, so their rights, would be others",
    "sasl.server.callback.handler.class": "it decides which passwords are right",
    "ssl.engine.factory.class": "it decides which certificates are trusted",
}


class ListenerPosture(NamedTuple):
    """Who can get in at one listener, and what they may do then."""

    listener: str
    address: str
    is_public: bool
    """Whether other machines may reach the address."""
    encryption: str
    login: str
    principal: str
    rights: str


class SecurityPosture(NamedTuple):
    listeners: list[ListenerPosture]
    authorization: str
    super_users: list[str]
    warnings: list[SecurityWarning]
    zookeeper: str | None
    """How brokers log in to ZooKeeper, and who may change znodes; None without ZooKeeper."""
    delegation_tokens: str | None
    """Where and how long they are valid; None if they are disabled."""


# --- rules that several parts need


def is_public(host: str) -> bool:
    """Returns whether a bound host may be reached from other machines."""
    if host.lower() == "localhost":
        return False
    try:
        return not ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return True  # all addresses, or a name that may resolve to any


def is_anonymous(values: BrokerValues, spec: ListenerSpec) -> bool:
    """Returns whether clients get in at the listener without a login or a certificate."""
    if spec.protocol.sasl:
        return False
    return not spec.protocol.tls or client_auth(values, spec) != "required"


# --- refused and warned about


def check_security(values: BrokerValues) -> None:
    """Raises ConfigError for a Java class that decides about clients: Penstock cannot run it."""
    for name, text in values.texts():
        setting = next((base for base in _JAVA_CLASSES if name.endswith(base)), None)
        if setting is None or not text or text in _DEFAULT_PRINCIPAL_BUILDERS:
            continue
        if name.endswith(f".{OAUTHBEARER.lower()}.{HANDLER_SETTING}") and text in (
            *VALIDATOR_CLASSES,
            UNSECURED_VALIDATOR_CLASS,
        ):
            continue
        raise ConfigError(
            f"{name}: Penstock cannot run {text}, and {_JAVA_CLASSES[setting]}",
            name,
            remedy="remove the setting if its default suits you",
        )


def security_warnings(
    values: BrokerValues, listeners: Iterable[ListenerSpec]
) -> list[SecurityWarning]:
    """Returns the settings that look safe and are not."""
    specs = list(listeners)
    return [
        *_authorizer_warnings(values),
        *_certificate_warnings(values, specs),
        *tls_warnings(values, specs),
        *_login_warnings(values, specs),
        *_anonymous_warnings(values, specs),
        *_token_warnings(values, specs),
        *_kerberos_warnings(values, specs),
        *zookeeper_warnings(values),
        *starmap(SecurityWarning, token_problems(values, _scram_listeners(values, specs))),
        *_metrics_warnings(values),
    ]


def _metrics_warnings(values: BrokerValues) -> Iterable[SecurityWarning]:
    host = values.str("metrics.host")
    if values.int("metrics.port") >= 0 and is_public(host):
        yield SecurityWarning(
            "metrics.host",
            f"{host or 'all addresses'}: whoever reaches metrics.port can read the metrics, which "
            "name topics, groups and directories",
            "bind it to a loopback address or a trusted network only",
        )


def _authorizer_warnings(values: BrokerValues) -> Iterable[SecurityWarning]:
    if values.str("authorizer.class.name"):
        return
    for name in ("super.users", "allow.everyone.if.no.acl.found"):
        if values.is_set(name) and values.text(name) not in ("", "true"):
            yield SecurityWarning(
                name,
                "has no effect without an authorizer: every client may do everything",
                f"set authorizer.class.name={STANDARD_AUTHORIZER}",
            )


def _certificate_warnings(
    values: BrokerValues, specs: list[ListenerSpec]
) -> Iterable[SecurityWarning]:
    name = "ssl.client.auth"
    general = (values.text(name) or "none").lower()
    if general != "none":
        without = [spec.name for spec in specs if not spec.protocol.tls]
        ignoring = [
            spec.name
            for spec in specs
            if spec.protocol.tls and spec.protocol.sasl and client_auth(values, spec) == "none"
        ]
        if without:
            yield SecurityWarning(
                name,
                f"{general} does not apply to {', '.join(without)}, which has no TLS: clients get "
                "in there without a certificate",
                "use SSL in listener.security.protocol.map, or remove the listener",
            )
        if ignoring:
            yield SecurityWarning(
                name,
                f"{general} does not apply to {', '.join(ignoring)}, whose clients log in with "
                "SASL",
                f"set listener.name.{ignoring[0].lower()}.{name} to require a certificate as well",
            )
    for spec in specs:
        if not spec.protocol.tls and values.is_set_for_listener(spec.name, name):
            yield SecurityWarning(
                f"listener.name.{spec.name.lower()}.{name}",
                f"has no effect: {spec.name} is a {spec.protocol.value} listener without TLS",
                f"set {spec.name}:SSL in listener.security.protocol.map",
            )


def _login_warnings(values: BrokerValues, specs: list[ListenerSpec]) -> Iterable[SecurityWarning]:
    name = "sasl.enabled.mechanisms"
    open_listeners = [spec.name for spec in specs if not spec.protocol.sasl]
    if values.is_set(name) and len(open_listeners) == len(specs):
        yield SecurityWarning(
            name,
            f"has no effect: clients do not log in at {', '.join(open_listeners)}",
            "use SASL_SSL or SASL_PLAINTEXT in listeners or listener.security.protocol.map",
        )
    for spec in specs:
        prefix = f"listener.name.{spec.name.lower()}."
        if spec.protocol.sasl:
            continue
        for setting, text in values.texts():
            if text and setting.startswith(prefix) and ".sasl." in setting:
                yield SecurityWarning(
                    setting,
                    f"has no effect: {spec.name} is a {spec.protocol.value} listener, where "
                    "clients do not log in",
                    f"set {spec.name}:SASL_{'SSL' if spec.protocol.tls else 'PLAINTEXT'} in "
                    "listener.security.protocol.map",
                )
                break


def _anonymous_warnings(
    values: BrokerValues, specs: list[ListenerSpec]
) -> Iterable[SecurityWarning]:
    if not values.str("authorizer.class.name"):
        return
    if str(ANONYMOUS) not in parse_super_users(values.text("super.users") or ""):
        return
    for spec in specs:
        if is_anonymous(values, spec) and is_public(spec.host):
            yield SecurityWarning(
                "super.users",
                f"{ANONYMOUS} is everyone who connects to {spec}, from any machine, without a "
                "login: they may do everything",
                "remove it, bind the listener to 127.0.0.1, or require a login there",
            )


def _token_warnings(values: BrokerValues, specs: list[ListenerSpec]) -> Iterable[SecurityWarning]:
    for spec in specs:
        if not spec.protocol.sasl or OAUTHBEARER not in _mechanism_names(values, spec):
            continue
        prefix = f"listener.name.{spec.name.lower()}.{OAUTHBEARER.lower()}."
        url = values.listener_setting(spec.name, JWKS_URL_SETTING, OAUTHBEARER) or ""
        if accepts_unsecured_tokens(values, spec):
            if is_public(spec.host):
                yield SecurityWarning(
                    prefix + HANDLER_SETTING,
                    f"{spec} accepts tokens without a signature: whoever reaches it can be any "
                    "user, without a password",
                    f"remove it and set {JWKS_URL_SETTING}, or bind the listener to 127.0.0.1",
                )
        elif url.lower().startswith("http:") and is_public(_url_host(url)):
            yield SecurityWarning(
                JWKS_URL_SETTING,
                f"{url} is not encrypted: whoever is on the way to it can exchange the keys, and "
                "be any user",
                "use https",
            )
        if not spec.protocol.tls and is_public(spec.host):
            yield SecurityWarning(
                "listeners",
                f"{spec} has no TLS: whoever reads a token on its way can use it until it expires",
                f"use SASL_SSL for {spec.name} in listener.security.protocol.map",
            )


def _kerberos_warnings(
    values: BrokerValues, specs: list[ListenerSpec]
) -> Iterable[SecurityWarning]:
    rules = dict.fromkeys(
        rule
        for spec in specs
        if spec.protocol.sasl and GSSAPI in _mechanism_names(values, spec)
        for rule in rules_of_any_realm(_name_rules(values, spec))
    )
    if rules:
        yield SecurityWarning(
            RULES_SETTING,
            f"{', '.join(rules)} does not look at the realm: where the KDC trusts other realms, "
            "their principals get the same names and rights",
            "write RULE:[1:$1@$0](.*@REALM)s/@.*// with your realm",
        )


def _name_rules(values: BrokerValues, spec: ListenerSpec) -> list[str]:
    return (values.listener_setting(spec.name, RULES_SETTING, GSSAPI) or "DEFAULT").split(",")


def accepts_unsecured_tokens(values: BrokerValues, spec: ListenerSpec) -> bool:
    """Returns whether clients of a listener can log in with tokens that nobody has signed."""
    try:
        options = jaas_options(
            values.listener_setting(spec.name, "sasl.jaas.config", OAUTHBEARER) or None
        )
    except KafkaError:
        options = {}
    return is_unsecured(
        values.listener_setting(spec.name, HANDLER_SETTING, OAUTHBEARER) or "",
        options,
        values.listener_setting(spec.name, JWKS_URL_SETTING, OAUTHBEARER),
    )


def _url_host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _mechanism_names(values: BrokerValues, spec: ListenerSpec) -> list[str]:
    mechanisms = values.listener_value(spec.name, "sasl.enabled.mechanisms")
    return mechanisms if isinstance(mechanisms, list) else []


def _scram_listeners(values: BrokerValues, specs: list[ListenerSpec]) -> list[str]:
    """Returns the listeners where clients can log in with passwords of SCRAM, or with tokens."""
    names = {mechanism.mechanism_name for mechanism in ScramMechanism}
    return [
        spec.name
        for spec in specs
        if spec.protocol.sasl and names.intersection(_mechanism_names(values, spec))
    ]


# --- description


def describe_security(values: BrokerValues, listeners: Iterable[ListenerSpec]) -> SecurityPosture:
    """Returns what the configuration allows to whom. The cluster's ACLs are not part of it."""
    specs = list(listeners)
    super_users = sorted(parse_super_users(values.text("super.users") or ""))
    has_authorizer = bool(values.str("authorizer.class.name"))
    if not has_authorizer:
        authorization = "none: every client may do everything"
    elif values.bool("allow.everyone.if.no.acl.found"):
        authorization = "ACLs; a resource without any ACL is open to every client"
    else:
        authorization = "ACLs; what no ACL allows is denied"
    return SecurityPosture(
        [_describe_listener(values, spec) for spec in specs],
        authorization,
        super_users if has_authorizer else [],
        security_warnings(values, specs),
        describe_zookeeper(values),
        describe_tokens(values, _scram_listeners(values, specs)),
    )


def _describe_listener(values: BrokerValues, spec: ListenerSpec) -> ListenerPosture:
    login, principal = _describe_login(values, spec)
    return ListenerPosture(
        spec.name,
        f"{spec.host or '*'}:{spec.port}",
        is_public(spec.host),
        "TLS" if spec.protocol.tls else "none",
        login,
        principal,
        _describe_rights(values, spec),
    )


def _describe_login(values: BrokerValues, spec: ListenerSpec) -> tuple[str, str]:
    if spec.protocol.sasl:
        logins = [
            _describe_mechanism(values, spec, name) for name in _mechanism_names(values, spec)
        ]
        if spec.protocol.tls and client_auth(values, spec) == "required":
            logins.append("and a client certificate")
        return ", ".join(logins), "User:<name of the login>"
    if not spec.protocol.tls or client_auth(values, spec) == "none":
        return "none", str(ANONYMOUS)
    rules = values.listener_setting(spec.name, "ssl.principal.mapping.rules") or "DEFAULT"
    named = "the certificate's distinguished name" if rules == "DEFAULT" else f"mapped by {rules}"
    if client_auth(values, spec) == "required":
        return "client certificate", f"User:<{named}>"
    return "client certificate, or none", f"User:<{named}>, or {ANONYMOUS}"


def _describe_mechanism(values: BrokerValues, spec: ListenerSpec, name: str) -> str:
    if name == OAUTHBEARER:
        if accepts_unsecured_tokens(values, spec):
            return f"{OAUTHBEARER} (any name: tokens need no signature)"
        url = values.listener_setting(spec.name, JWKS_URL_SETTING, OAUTHBEARER) or "no keys"
        return f"{OAUTHBEARER} (tokens signed with keys at {url})"
    if name == GSSAPI:
        return _describe_kerberos(values, spec)
    if name != PLAIN:
        return name
    try:
        jaas = values.listener_setting(spec.name, "sasl.jaas.config", PLAIN) or ""
        users = sorted(plain_users(jaas))
    except KafkaError:
        users = []
    return f"{PLAIN} ({', '.join(users) or 'no users'})"


def _describe_kerberos(values: BrokerValues, spec: ListenerSpec) -> str:
    try:
        jaas = values.listener_setting(spec.name, JAAS_SETTING, GSSAPI)
        _, principal = parse_server_login(jaas)
    except KafkaError:
        return f"{GSSAPI} (no keytab)"
    rules = ", ".join(_name_rules(values, spec))
    return f"{GSSAPI} (Kerberos tickets for {principal}; names by {rules})"


def _describe_rights(values: BrokerValues, spec: ListenerSpec) -> str:
    if not values.str("authorizer.class.name"):
        return "everything"
    super_users = parse_super_users(values.text("super.users") or "")
    if is_anonymous(values, spec) and str(ANONYMOUS) in super_users:
        return "everything"
    rights = "as ACLs allow"
    return f"{rights}; super users everything" if super_users else rights
