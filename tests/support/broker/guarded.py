"""A broker that requires TLS and a password, for tests of its clients."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.client import Admin, Producer
from penstock.client.admin import NewTopic, ScramMechanism, ScramUpsertion
from penstock.client.settings import CommonOptions
from penstock.testing import Broker
from tests.support.broker.certificates import Identity, make_identity, simple_name
from tests.support.broker.logins import PLAIN_JAAS

USER = "spark"
PASSWORD = "Hush-4711"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@dataclass(frozen=True)
class Guarded:
    """The address of the broker and the credentials of its clients."""

    address: str
    authority: Identity

    def properties(self, password: str = PASSWORD) -> dict[str, str]:
        """Returns Kafka's properties for `USER`: SCRAM over TLS."""
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{_SCRAM} username="{USER}" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": self.authority.certificate_pem,
        }

    def create(self, topic: str, partitions: int) -> None:
        with Admin(**self._admin_options()) as admin:
            admin.create_topics([NewTopic(topic, partitions)])

    def fill(self, topic: str, partition: int, values: list[bytes]) -> None:
        with Producer(**self._admin_options()) as producer:
            producer.send_many(topic, values, partition=partition)

    def add_user(self) -> None:
        """Creates the credentials of `USER`, with the user in the broker's settings."""
        with Admin(**self._admin_options()) as admin:
            mechanism = ScramMechanism.SCRAM_SHA_512
            admin.alter_user_scram_credentials([ScramUpsertion(USER, mechanism, PASSWORD)])

    def _admin_options(self) -> CommonOptions:
        return {
            "bootstrap_servers": self.address,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "admin",
            "sasl_plain_password": "admin-secret",
            "ssl_truststore_type": "PEM",
            "ssl_truststore_certificates": self.authority.certificate_pem,
        }


@contextmanager
def guarded_broker() -> Iterator[Guarded]:
    """Runs a broker with one listener."""
    authority = make_identity(simple_name("authority"))
    identity = make_identity(simple_name("broker"), authority)
    settings = {
        "listeners": "SASL_SSL://localhost:0",
        "inter.broker.listener.name": "SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN_JAAS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": identity.key_pem(),
        "ssl.keystore.certificate.chain": identity.certificate_pem,
        "connection.failed.authentication.delay.ms": "0",
    }
    with Broker(settings) as broker:
        guarded = Guarded(broker.bootstrap_servers, authority)
        guarded.add_user()
        yield guarded
