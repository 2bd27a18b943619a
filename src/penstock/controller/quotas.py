"""Quotas of users, client ids and addresses (X4)."""

from collections.abc import Mapping

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change
from penstock.controller.settings import Entity, replaced, values_of


def alter_quotas(image: ClusterImage, altered: Mapping[Entity, Mapping[str, str]]) -> list[Change]:
    """Each entity has these settings from now on, and no others.

    They are worked out from those of now, so that what is no quota (a user's credentials) stays.
    """
    return [
        change
        for entity, values in altered.items()
        if values != values_of(image, entity)
        for change in replaced(image, entity, values)
    ]
