"""Quotas of users, client ids and addresses."""

from collections.abc import Mapping, Sequence

from penstock.client.admin.advice import explain
from penstock.client.admin.model_security import (
    ClientQuotaEntity,
    ClientQuotaFilter,
    Quota,
    QuotaMatch,
    QuotaName,
)
from penstock.client.admin.routing import CONTROLLER_CODES, Router, Where
from penstock.core.errors import ErrorCode, KafkaError
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

_EVERYTHING = ClientQuotaFilter()
_TYPES = {"user": "user", "client_id": "client-id", "ip": "ip"}
"""The parts of an entity, as we and as the protocol calls them."""
_EXACT, _DEFAULT, _ANY = range(3)


class QuotaCalls(Router):
    """Calls about quotas."""

    async def describe_client_quotas(
        self, quota_filter: ClientQuotaFilter = _EVERYTHING, *, timeout_ms: int | None = None
    ) -> dict[ClientQuotaEntity, dict[str, float]]:
        """The quotas that a filter matches, by name: `producer_byte_rate` and so on."""
        given = {
            kind: match
            for name, kind in _TYPES.items()
            if (match := _part(quota_filter, name)) is not None
        }
        response = await self._ask(
            "describe_client_quotas",
            Where.ANY,
            DescribeClientQuotasRequest(
                [_component(kind, match) for kind, match in given.items()], quota_filter.strict
            ),
            DescribeClientQuotasResponse,
            self._deadline(timeout_ms),
            verdict=lambda answer: (answer.error_code, answer.error_message),
        )
        return {
            _entity({part.entity_type: part.entity_name for part in entry.entity}): {
                value.key: value.value for value in sorted(entry.values, key=lambda each: each.key)
            }
            for entry in response.entries or ()
        }

    async def alter_client_quotas(
        self,
        changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Set quotas; None removes one."""
        deadline_ms = self._deadline(timeout_ms)

        async def send(
            node_id: int, some: Sequence[ClientQuotaEntity]
        ) -> Mapping[ClientQuotaEntity, KafkaError | None]:
            entries = [
                AlterClientQuotasRequestEntryData(
                    _parts(entity),
                    [
                        OpData(key, 0.0 if value is None else float(value), value is None)
                        for key, value in changes[entity].items()
                    ],
                )
                for entity in some
            ]
            response = await self._request(
                "alter_client_quotas",
                node_id,
                AlterClientQuotasRequest(entries, validate_only),
                AlterClientQuotasResponse,
                deadline_ms,
            )
            return {
                (entity := _entity({part.entity_type: part.entity_name for part in each.entity})): (
                    None
                    if each.error_code == ErrorCode.NONE
                    else explain(each.error_code, f"quota of {_text(entity)}", each.error_message)
                )
                for each in response.entries
            }

        await self._each(
            "alter_client_quotas",
            changes,
            self._at(Where.ANY, deadline_ms),
            send,
            deadline_ms,
            retriable=CONTROLLER_CODES,
        )


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
        given = parts[kind]
        return Quota.DEFAULT if given is None else given

    return ClientQuotaEntity(name("user"), name("client-id"), name("ip"))


def _text(entity: ClientQuotaEntity) -> str:
    return ", ".join(
        f"{kind} {name.value if isinstance(name, Quota) else name}"
        for part, kind in _TYPES.items()
        if (name := _part(entity, part)) is not None
    )
