"""Which APIs this broker serves, in which versions: what is not in the table is not advertised.

The handler of an API is the function `handle` of a module that is imported with the first request.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from penstock.broker.request import Reply, Request
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

Handler: TypeAlias = Callable[["Broker", Request, Any], Reply]
"""`handle(broker, request, body)`; `body` is of the request class of the API."""


class VersionRange(NamedTuple):
    low: int
    high: int


MODULES: dict[ApiKey, str] = {
    ApiKey.PRODUCE: "k00_produce",
    ApiKey.FETCH: "k01_fetch",
    ApiKey.LIST_OFFSETS: "k02_list_offsets",
    ApiKey.METADATA: "k03_metadata",
    ApiKey.SASL_HANDSHAKE: "k17_sasl_handshake",
    ApiKey.API_VERSIONS: "k18_api_versions",
    ApiKey.CREATE_TOPICS: "k19_create_topics",
    ApiKey.DELETE_TOPICS: "k20_delete_topics",
    ApiKey.DELETE_RECORDS: "k21_delete_records",
    ApiKey.INIT_PRODUCER_ID: "k22_init_producer_id",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "k23_offset_for_leader_epoch",
    ApiKey.SASL_AUTHENTICATE: "k36_sasl_authenticate",
    ApiKey.CREATE_PARTITIONS: "k37_create_partitions",
    ApiKey.ELECT_LEADERS: "k43_elect_leaders",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "k45_alter_partition_reassignments",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "k46_list_partition_reassignments",
    ApiKey.DESCRIBE_CLUSTER: "k60_describe_cluster",
    ApiKey.DESCRIBE_PRODUCERS: "k61_describe_producers",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "k75_describe_topic_partitions",
}

_OLDEST = {
    # Older fetches want record formats that Kafka stopped to serve with 4.0.
    ApiKey.FETCH: 4,
}


@cache
def served_versions() -> dict[ApiKey, VersionRange]:
    """The versions of every API that is served, by key."""
    served = {}
    for key in sorted(MODULES):
        of = api(key)
        served[key] = VersionRange(max(of.min_version, _OLDEST.get(key, 0)), of.max_version)
    return served


def load(key: ApiKey) -> Handler:
    """The handler of an API that is served."""
    handler: Handler = import_module(f"penstock.broker.handlers.{MODULES[key]}").handle
    return handler
