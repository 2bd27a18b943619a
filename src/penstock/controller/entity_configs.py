"""From new values of an entity to changes: topics, brokers, quotas and credentials alike."""

from collections.abc import Iterable, Mapping

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change, ConfigKey, ConfigRecord, Delete, Put

Entity = tuple[tuple[str, str], ...]


def replace_configs(image: ClusterImage, entity: Entity, values: Mapping[str, str]) -> list[Change]:
    """The entity has these settings from now on, and no others."""
    key = ConfigKey(entity)
    if values:
        return [Put(ConfigRecord(entity, dict(values)))]
    return [Delete(key)] if key in image.configs else []


def update_configs(
    image: ClusterImage, updates: Iterable[tuple[Entity, Mapping[str, str | None]]]
) -> list[Change]:
    """Some settings of these entities change; None removes one. An entity may come several times.

    What is the same as before makes no change.
    """
    after: dict[Entity, dict[str, str]] = {}
    for entity, update in updates:
        if entity not in after:
            after[entity] = dict(configs_of(image, entity))
        for name, value in update.items():
            if value is None:
                after[entity].pop(name, None)
            else:
                after[entity][name] = value
    return [
        change
        for entity, values in after.items()
        if values != configs_of(image, entity)
        for change in replace_configs(image, entity, values)
    ]


def configs_of(image: ClusterImage, entity: Entity) -> Mapping[str, str]:
    """The settings of an entity; empty where it has none."""
    record = image.configs.get(ConfigKey(entity))
    return {} if record is None else record.values
