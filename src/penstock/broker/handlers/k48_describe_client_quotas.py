"""DescribeClientQuotas (48): versions 0 and 1: quotas of users, client ids and addresses (X4)."""

from typing import TYPE_CHECKING

from penstock.broker.request import HandlerResult, Request
from penstock.core.errors import KafkaError
from penstock.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasEntityData,
    DescribeClientQuotasEntryData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    ValueData,
)
from penstock.security.acl import AclOperation
from penstock.security.quota_entities import QuotaFilter, entity_to_wire, quota_values

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


def handle(broker: "Broker", request: Request, body: DescribeClientQuotasRequest) -> HandlerResult:
    try:
        broker.authorizer.require(request.session, AclOperation.DESCRIBE_CONFIGS)
        wanted = QuotaFilter.of_wire(
            ((each.entity_type, each.match_type, each.match) for each in body.components),
            body.strict,
        )
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    entries = []
    for key, record in broker.image.configs.items():
        # A user may have settings that are no quotas: credentials.
        values = quota_values(record.values) if wanted.matches(key.entity) else {}
        if values:
            entity = entity_to_wire(key.entity)
            entries.append(
                DescribeClientQuotasEntryData(
                    [DescribeClientQuotasEntityData(*part) for part in entity],
                    [ValueData(*value) for value in values.items()],
                )
            )
    return DescribeClientQuotasResponse(entries=entries)
