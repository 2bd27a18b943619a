"""Admin calls for the quotas of users, client ids and addresses."""

from collections.abc import Mapping, Sequence

from penstock.client.admin.advice import response_error
from penstock.client.admin.api_driver import AdminApiDriver, AdminCall, NodeProvider, Results
from penstock.client.admin.api_lookup import single_node
from penstock.client.admin.model_security import (
    ClientQuotaEntity,
    ClientQuotaFilter,
    Quota,
    QuotaMatch,
    QuotaName,
)
from penstock.core.errors import KafkaError
from penstock.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    OpData,
)
from penstock.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

_ANY_QUOTA = ClientQuotaFilter()
_TYPES = {"user": "user", "client_id": "client-id", "ip": "ip"}
"""The types of an entity's parts in the protocol, by their attribute."""
_EXACT, _DEFAULT, _ANY = range(3)


async def describe_client_quotas(
    admin: AdminApiDriver,
    quota_filter: ClientQuotaFilter = _ANY_QUOTA,
    *,
    timeout_ms: int | None = None,
) -> dict[ClientQuotaEntity, dict[str, float]]:
    """Returns the quotas that match a filter, by name: `producer_byte_rate` and others."""
    components = [
        _component(kind, match)
        for name, kind in _TYPES.items()
        if (match := _part(quota_filter, name)) is not None
    ]
    response = await AdminCall(admin, "describe_client_quotas", timeout_ms).request_until_done(
        NodeProvider.ANY,
        DescribeClientQuotasRequest(components, quota_filter.strict),
        DescribeClientQuotasResponse,
    )
    return {
        _entity({part.entity_type: part.entity_name for part in entry.entity}): {
            value.key: value.value for value in sorted(entry.values, key=lambda item: item.key)
        }
        for entry in response.entries or ()
    }


async def alter_client_quotas(
    admin: AdminApiDriver,
    changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
    *,
    validate_only: bool = False,
    timeout_ms: int | None = None,
) -> None:
    """Sets quotas; None removes one."""
    call = AdminCall(admin, "alter_client_quotas", timeout_ms)

    async def send(
        node_id: int, keys: Sequence[ClientQuotaEntity]
    ) -> Results[ClientQuotaEntity, None]:
        entries = [
            AlterClientQuotasRequestEntryData(
                _parts(entity),
                [
                    OpData(key, 0.0 if value is None else float(value), value is None)
                    for key, value in changes[entity].items()
                ],
            )
            for entity in keys
        ]
        request = AlterClientQuotasRequest(entries, validate_only)
        response = await call.request(node_id, request, AlterClientQuotasResponse)
        results: dict[ClientQuotaEntity, KafkaError | None] = {}
        for entry in response.entries:
            entity = _entity({part.entity_type: part.entity_name for part in entry.entity})
            results[entity] = response_error(entry, f"quota of {_text(entity)}")
        return results

    await call.request_each(changes, single_node(call, NodeProvider.ANY), send)


def _part(of: ClientQuotaFilter | ClientQuotaEntity, name: str) -> QuotaMatch | None:
    match: QuotaMatch | None = getattr(of, name)
    return match


def _component(kind: str, match: QuotaMatch) -> ComponentData:
    if match is Quota.DEFAULT:
        return ComponentData(kind, _DEFAULT, None)
    if match is Quota.ANY:
        return ComponentData(kind, _ANY, None)
    return ComponentData(kind, _EXACT, str(match))


def _parts(entity: ClientQuotaEntity) -> list[AlterClientQuotasRequestEntityData]:
    return [
        AlterClientQuotasRequestEntityData(kind, None if name is Quota.DEFAULT else str(name))
        for part, kind in _TYPES.items()
        if (name := _part(entity, part)) is not None
    ]


def _entity(parts: Mapping[str, str | None]) -> ClientQuotaEntity:
    def name(kind: str) -> QuotaName | None:
        if kind not in parts:
            return None
        value = parts[kind]
        return Quota.DEFAULT if value is None else value

    return ClientQuotaEntity(name("user"), name("client-id"), name("ip"))


def _text(entity: ClientQuotaEntity) -> str:
    return ", ".join(
        f"{kind} {name.value if isinstance(name, Quota) else name}"
        for part, kind in _TYPES.items()
        if (name := _part(entity, part)) is not None
    )
