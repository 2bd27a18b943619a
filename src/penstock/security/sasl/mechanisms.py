"""The table of SASL mechanisms: adding one takes a file beside this one and a line here."""

from typing import Final

from penstock.security.sasl.gssapi import GSSAPI_MECHANISM
from penstock.security.sasl.oauthbearer import OAUTHBEARER_MECHANISM
from penstock.security.sasl.plain import PLAIN_MECHANISM
from penstock.security.sasl.scram import SCRAM_SHA_256_MECHANISM, SCRAM_SHA_512_MECHANISM
from penstock.security.sasl.server import ServerMechanism

MECHANISMS: Final[dict[str, ServerMechanism]] = {
    mechanism.name: mechanism
    for mechanism in (
        PLAIN_MECHANISM,
        SCRAM_SHA_256_MECHANISM,
        SCRAM_SHA_512_MECHANISM,
        OAUTHBEARER_MECHANISM,
        GSSAPI_MECHANISM,
    )
}
"""The mechanisms that clients can log in with, by name."""
