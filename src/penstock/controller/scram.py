"""Changes to SCRAM credentials (X2), which are stored among the settings of the user."""

from collections.abc import Iterable

from penstock.controller.entity_configs import update_configs
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change


def alter_scram_credentials(
    image: ClusterImage, credentials: Iterable[tuple[str, str, str | None]]
) -> list[Change]:
    """Sets or removes credentials: tuples of user, mechanism and stored credential (or None)."""
    return update_configs(
        image,
        (((("users", user),), {mechanism: value}) for user, mechanism, value in credentials),
    )
