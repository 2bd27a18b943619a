"""Changes to the quotas of users, client ids and IP addresses (X4)."""

from collections.abc import Mapping

from penstock.controller.entity_configs import Entity, configs_of, replace_configs
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change


def alter_quotas(image: ClusterImage, altered: Mapping[Entity, Mapping[str, str]]) -> list[Change]:
    """Returns the changes that give each entity exactly these settings.

    The caller includes the settings of the entity that are no quotas, such as SCRAM credentials.
    """
    return [
        change
        for entity, values in altered.items()
        if values != configs_of(image, entity)
        for change in replace_configs(image, entity, values)
    ]
