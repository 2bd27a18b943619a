"""SCRAM credentials of users that do not exist, so that logins do not tell who does (X2)."""

from collections.abc import Iterable
from functools import cached_property

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change, ConfigKey, ConfigRecord, Delete, Put
from penstock.core.errors import KafkaError
from penstock.security.scram_credential import (
    MIN_ITERATIONS,
    CredentialShape,
    ScramCredential,
    ScramMechanism,
    decoy_credential,
)

_MECHANISMS = {mechanism.mechanism_name: mechanism for mechanism in ScramMechanism}


class DecoyCredentials:
    """Decoys that resemble the stored credentials, the same on all brokers and after a restart."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    def scram_credential(self, mechanism: str, user: str) -> str:
        shapes = self._shapes[mechanism]
        return decoy_credential(
            _MECHANISMS[mechanism], self._image.login_secret, user, shapes
        ).to_text()

    def apply(self, changes: Iterable[Change]) -> None:
        """Collects the shapes again, at the next login, if credentials may have changed."""
        for change in changes:
            match change:
                case Put(ConfigRecord(entity=(("users", _),))):
                    self.__dict__.pop("_shapes", None)
                case Delete(ConfigKey(entity=(("users", _),))):
                    self.__dict__.pop("_shapes", None)

    @cached_property
    def _shapes(self) -> dict[str, list[CredentialShape]]:
        """The shapes of all usable credentials, sorted, by mechanism."""
        shapes: dict[str, list[CredentialShape]] = {name: [] for name in _MECHANISMS}
        for key, record in self._image.configs.items():
            if key.entity[0][0] != "users" or len(key.entity) > 1:
                continue
            for name in shapes.keys() & record.values.keys():
                try:
                    credential = ScramCredential.from_text(record.values[name])
                except KafkaError:
                    continue  # its user cannot log in either
                if credential.iterations >= MIN_ITERATIONS:
                    shapes[name].append(CredentialShape.of(credential))
        return {name: sorted(known_shapes) for name, known_shapes in shapes.items()}
