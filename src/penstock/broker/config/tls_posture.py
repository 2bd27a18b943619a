"""TLS in the security posture of a configuration (X3)."""

from collections.abc import Iterable
from typing import Final

from penstock.broker.config.listeners import ListenerSpec
from penstock.broker.config.security_warning import SecurityWarning
from penstock.broker.config.values import BrokerValues

_OLD_VERSIONS: Final = ("TLSv1", "TLSv1.1")


def client_auth(values: BrokerValues, spec: ListenerSpec) -> str:
    """Returns whether clients of a TLS listener present a certificate: required, requested, none.

    As in Kafka, only the setting with the listener's prefix applies to a SASL_SSL listener.
    """
    name = "ssl.client.auth"
    if spec.protocol.sasl and not values.is_set_for_listener(spec.name, name):
        return "none"
    return str(values.listener_value(spec.name, name)).lower()


def tls_warnings(values: BrokerValues, specs: list[ListenerSpec]) -> Iterable[SecurityWarning]:
    """Yields settings of TLS listeners that look safe and are not."""
    for spec in specs:
        if not spec.protocol.tls:
            continue
        auth = client_auth(values, spec)
        if auth == "requested" and not spec.protocol.sasl:
            yield SecurityWarning(
                "ssl.client.auth",
                f"requested lets clients of {spec.name} in without a certificate, as "
                "User:ANONYMOUS",
                "set it to required when all clients have one",
            )
        if auth != "none" and not any(
            values.listener_setting(spec.name, f"ssl.truststore.{name}")
            for name in ("location", "certificates")
        ):
            yield SecurityWarning(
                "ssl.truststore.location",
                f"is not set: {spec.name} accepts client certificates of every authority that "
                "this machine trusts, such as those of public web sites",
                "set it to the authority of your clients",
            )
        versions = values.listener_setting(spec.name, "ssl.enabled.protocols") or ""
        old = [name for name in map(str.strip, versions.split(",")) if name in _OLD_VERSIONS]
        if old:
            yield SecurityWarning(
                "ssl.enabled.protocols",
                f"{', '.join(old)} has known weaknesses, and {spec.name} accepts it",
                "use TLSv1.2,TLSv1.3",
            )
