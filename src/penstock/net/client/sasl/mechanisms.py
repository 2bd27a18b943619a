"""The table of SASL mechanisms of clients. A new mechanism is a file and a line in `MECHANISMS`."""

from collections.abc import Callable
from typing import Final

from penstock.net.client.errors import ConfigError
from penstock.net.client.sasl.client import ClientMechanism, SaslClient, SaslSettings
from penstock.net.client.sasl.gssapi import GSSAPI_MECHANISM
from penstock.net.client.sasl.oauthbearer import OAUTHBEARER_MECHANISM
from penstock.net.client.sasl.plain import PLAIN_MECHANISM
from penstock.net.client.sasl.scram import SCRAM_MECHANISMS

MECHANISMS: Final[dict[str, ClientMechanism]] = {
    mechanism.name: mechanism
    for mechanism in (PLAIN_MECHANISM, *SCRAM_MECHANISMS, OAUTHBEARER_MECHANISM, GSSAPI_MECHANISM)
}


def login_factory(settings: SaslSettings) -> Callable[[str], SaslClient]:
    """Returns the function that creates the login for a connection to a host.

    Raises ConfigError when the mechanism is not supported, or a setting that it needs is missing.
    """
    name = settings.mechanism.upper()
    mechanism = MECHANISMS.get(name)
    if mechanism is None:
        choices = "; ".join(
            f"{entry.name} with `{'` and `'.join(entry.required_settings)}`"
            for entry in MECHANISMS.values()
        )
        raise ConfigError(
            f"`sasl_mechanism`={name} is not supported",
            remedy=f"set `sasl_mechanism` to one of {choices}",
        )
    return mechanism.create(settings)
