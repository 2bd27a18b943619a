"""Changes to the settings of any entity: topics, brokers, groups, quotas and SCRAM credentials."""

from collections.abc import Iterable, Mapping

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change, ConfigKey, ConfigRecord, Delete, Put

Entity = tuple[tuple[str, str], ...]


def replace_configs(image: ClusterImage, entity: Entity, values: Mapping[str, str]) -> list[Change]:
    """Returns the changes that give the entity exactly these settings."""
    key = ConfigKey(entity)
    if values:
        return [Put(ConfigRecord(entity, dict(values)))]
    return [Delete(key)] if key in image.configs else []


def update_configs(
    image: ClusterImage, updates: Iterable[tuple[Entity, Mapping[str, str | None]]]
) -> list[Change]:
    """Returns the changes that set single settings of entities, or remove them (None).

    An entity may occur several times. One whose settings stay the same needs no change.
    """
    updated: dict[Entity, dict[str, str]] = {}
    for entity, update in updates:
        if entity not in updated:
            updated[entity] = dict(configs_of(image, entity))
        for name, value in update.items():
            if value is None:
                updated[entity].pop(name, None)
            else:
                updated[entity][name] = value
    return [
        change
        for entity, values in updated.items()
        if values != configs_of(image, entity)
        for change in replace_configs(image, entity, values)
    ]


def configs_of(image: ClusterImage, entity: Entity) -> Mapping[str, str]:
    """Returns the settings of an entity; empty if it has none."""
    record = image.configs.get(ConfigKey(entity))
    return {} if record is None else record.values
