"""Quotas of users, client ids and addresses (X4)."""

from collections.abc import Mapping

from penstock.controller.entity_configs import Entity, configs_of, replace_configs
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change


def alter_quotas(image: ClusterImage, altered: Mapping[Entity, Mapping[str, str]]) -> list[Change]:
    """Each entity has these settings from now on, and no others.

    They are worked out from those of now, so that what is no quota (a user's credentials) stays.
    """
    return [
        change
        for entity, values in altered.items()
        if values != configs_of(image, entity)
        for change in replace_configs(image, entity, values)
    ]
