"""AlterClientQuotas (49), versions 0 and 1: alters quotas, before the response is sent (X4)."""

from dataclasses import dataclass

from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.entity_configs import configs_of
from penstock.controller.image import ClusterImage
from penstock.controller.quotas import alter_quotas
from penstock.controller.result import ControllerResult
from penstock.core.errors import KafkaError
from penstock.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)
from penstock.security.acl import AclOperation
from penstock.security.quota_entities import Entity, altered_values, entity_of_wire


@dataclass(frozen=True, slots=True)
class Context:
    controller: ControllerHost
    authorizer: RequestAuthorizer


async def handle(context: Context, request: Request, body: AlterClientQuotasRequest) -> Response:
    try:
        context.authorizer.require(request.session, AclOperation.ALTER_CONFIGS)
    except KafkaError as error:
        return AlterClientQuotasResponse(entries=[_result(entry, error) for entry in body.entries])

    def decide(image: ClusterImage) -> ControllerResult[AlterClientQuotasResponse]:
        altered: dict[Entity, dict[str, str]] = {}
        results = []
        for entry in body.entries:
            try:
                entity = entity_of_wire(
                    (part.entity_type, part.entity_name) for part in entry.entity
                )
                before = altered.get(entity, configs_of(image, entity))
                ops = ((op.key, None if op.remove else op.value) for op in entry.ops)
                altered[entity] = altered_values(entity, before, ops)
                results.append(_result(entry, None))
            except KafkaError as error:
                results.append(_result(entry, error))
        changes = [] if body.validate_only else alter_quotas(image, altered)
        return ControllerResult(changes, AlterClientQuotasResponse(entries=results))

    try:
        return await context.controller.write(decide, request)
    except KafkaError as error:
        return AlterClientQuotasResponse(entries=[_result(entry, error) for entry in body.entries])


def _result(
    entry: AlterClientQuotasRequestEntryData, error: KafkaError | None
) -> AlterClientQuotasResponseEntryData:
    entity = [
        AlterClientQuotasResponseEntityData(part.entity_type, part.entity_name)
        for part in entry.entity
    ]
    if error is None:
        return AlterClientQuotasResponseEntryData(0, None, entity)
    return AlterClientQuotasResponseEntryData(error.code, error.message, entity)
