"""DescribeClientQuotas (48), versions 0 and 1: returns quotas of users, clients and IPs (X4)."""

from dataclasses import dataclass

from penstock.broker.pacer import Pacer, Steps
from penstock.broker.request import HandlerResult, Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.image import ClusterImage
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


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    image: ClusterImage
    authorizer: RequestAuthorizer


def handle(context: Context, request: Request, body: DescribeClientQuotasRequest) -> HandlerResult:
    try:
        context.authorizer.require(request.session, AclOperation.DESCRIBE_CONFIGS)
        quota_filter = QuotaFilter.of_wire(
            (
                (component.entity_type, component.match_type, component.match)
                for component in body.components
            ),
            body.strict,
        )
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    return context.pacer.run(_matching_quotas(context, quota_filter))


def _matching_quotas(context: Context, quota_filter: QuotaFilter) -> Steps[Response]:
    entries = []
    for key, record in list(context.image.configs.items()):
        yield
        # A user may have configs other than quotas: credentials.
        values = quota_values(record.values) if quota_filter.matches(key.entity) else {}
        if values:
            entity = entity_to_wire(key.entity)
            entries.append(
                DescribeClientQuotasEntryData(
                    [DescribeClientQuotasEntityData(*part) for part in entity],
                    [ValueData(*value) for value in values.items()],
                )
            )
    return DescribeClientQuotasResponse(entries=entries)
