"""The settings of the clients: Kafka's names in snake_case, Kafka's defaults.

Each client has one declaration, a TypedDict: its keys are the keyword arguments of the client, with
their types, and `resolve` fills in what was not given. So a setting is written down once, an editor
knows it, and code reads it as `settings["linger_ms"]`.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, TypedDict, TypeVar, cast, get_args, get_type_hints

from penstock.client.errors import ConfigError

Options = TypeVar("Options", bound=Mapping[str, object])

_REQUIRED: Final = object()


@dataclass(frozen=True, slots=True)
class Setting:
    """What there is to know about a setting beside its type."""

    default: object
    doc: str
    at_least: int | None = None
    at_most: int | None = None
    one_of: tuple[str, ...] = ()


def setting(
    default: object,
    doc: str,
    *,
    at_least: int | None = None,
    at_most: int | None = None,
    one_of: tuple[str, ...] = (),
) -> Setting:
    return Setting(default, doc, at_least, at_most, one_of)


_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MAX_INT = 2**31 - 1


class CommonOptions(TypedDict, total=False):
    """What every client takes."""

    bootstrap_servers: Annotated[
        str | Sequence[str],
        setting(_REQUIRED, "Brokers to ask first, host:port, as a list or separated by commas."),
    ]
    client_id: Annotated[str, setting("", "Name of this client in logs, metrics and quotas.")]
    request_timeout_ms: Annotated[
        int, setting(30_000, "Wait for an answer; then the connection is given up.", at_least=0)
    ]
    default_api_timeout_ms: Annotated[
        int, setting(60_000, "Time for a call that names none, retries included.", at_least=0)
    ]
    retry_backoff_ms: Annotated[int, setting(100, "Wait before the first retry.", at_least=0)]
    retry_backoff_max_ms: Annotated[
        int, setting(1_000, "Longest wait between two retries.", at_least=0)
    ]
    reconnect_backoff_ms: Annotated[
        int, setting(50, "Wait before the first reconnection to a broker.", at_least=0)
    ]
    reconnect_backoff_max_ms: Annotated[
        int, setting(1_000, "Longest wait between two connections to a broker.", at_least=0)
    ]
    socket_connection_setup_timeout_ms: Annotated[
        int, setting(10_000, "Time for a connection to be made; it doubles on failure.", at_least=1)
    ]
    socket_connection_setup_timeout_max_ms: Annotated[
        int, setting(30_000, "Most time for a connection to be made.", at_least=1)
    ]
    connections_max_idle_ms: Annotated[
        int, setting(540_000, "Idle connections are closed after this time.")
    ]
    send_buffer_bytes: Annotated[
        int, setting(-1, "SO_SNDBUF; -1 is the system's choice.", at_least=-1)
    ]
    receive_buffer_bytes: Annotated[
        int, setting(-1, "SO_RCVBUF; -1 is the system's choice.", at_least=-1)
    ]
    metadata_max_age_ms: Annotated[
        int, setting(300_000, "Metadata older than this is asked for anew.", at_least=0)
    ]
    metadata_recovery_strategy: Annotated[
        str,
        setting(
            "rebootstrap",
            "What to do when none of the known brokers can be reached.",
            one_of=("none", "rebootstrap"),
        ),
    ]
    metadata_recovery_rebootstrap_trigger_ms: Annotated[
        int,
        setting(300_000, "Without metadata for so long, start from the bootstrap servers again."),
    ]
    metrics_num_samples: Annotated[int, setting(2, "Samples kept for a metric.", at_least=1)]
    metrics_sample_window_ms: Annotated[
        int, setting(30_000, "Length of a sample of a metric.", at_least=0)
    ]
    security_protocol: Annotated[
        str, setting("PLAINTEXT", "How to speak with brokers.", one_of=_PROTOCOLS)
    ]
    sasl_mechanism: Annotated[str, setting("GSSAPI", "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.")]
    sasl_jaas_config: Annotated[
        str | None, setting(None, "Login as Kafka's property files have it.")
    ]
    sasl_plain_username: Annotated[str | None, setting(None, "User for PLAIN and SCRAM.")]
    sasl_plain_password: Annotated[str | None, setting(None, "Password for PLAIN and SCRAM.")]
    ssl_truststore_location: Annotated[str | None, setting(None, "File of trusted certificates.")]
    ssl_truststore_type: Annotated[str, setting("JKS", "PEM or PKCS12.")]
    ssl_truststore_password: Annotated[str | None, setting(None, "Password of the truststore.")]
    ssl_truststore_certificates: Annotated[
        str | None, setting(None, "Trusted certificates themselves, in PEM.")
    ]
    ssl_keystore_location: Annotated[str | None, setting(None, "File of this client's key.")]
    ssl_keystore_type: Annotated[str, setting("JKS", "PEM or PKCS12.")]
    ssl_keystore_password: Annotated[str | None, setting(None, "Password of the keystore.")]
    ssl_keystore_key: Annotated[str | None, setting(None, "This client's key itself, in PEM.")]
    ssl_keystore_certificate_chain: Annotated[
        str | None, setting(None, "This client's certificates themselves, in PEM.")
    ]
    ssl_key_password: Annotated[str | None, setting(None, "Password of this client's key.")]
    ssl_endpoint_identification_algorithm: Annotated[
        str, setting("https", "https checks the broker's name, empty does not.")
    ]
    ssl_enabled_protocols: Annotated[
        str | Sequence[str], setting(("TLSv1.2", "TLSv1.3"), "Versions of TLS.")
    ]
    ssl_cipher_suites: Annotated[str | Sequence[str], setting((), "Suites; empty is the default.")]
    ssl_cafile: Annotated[str | None, setting(None, "Trusted certificates: a file in PEM.")]
    ssl_certfile: Annotated[str | None, setting(None, "This client's certificate in PEM.")]
    ssl_keyfile: Annotated[str | None, setting(None, "This client's key in PEM.")]
    ssl_check_hostname: Annotated[bool, setting(True, "Whether the broker's name is checked.")]
    ssl_context: Annotated[Any, setting(None, "An ssl.SSLContext, instead of all of these.")]


class ProducerOptions(CommonOptions, total=False):
    """What `Producer` takes."""

    acks: Annotated[
        str | int,
        setting("all", "Who must have a record: 0 nobody, 1 the leader, all the in-sync replicas."),
    ]
    enable_idempotence: Annotated[
        bool,
        setting(None, "Each record once and in order, whatever is retried. On where acks allow."),
    ]
    transactional_id: Annotated[
        str | None, setting(None, "Name of the producer across restarts, for transactions.")
    ]
    transaction_timeout_ms: Annotated[
        int, setting(60_000, "An open transaction is aborted after this time.", at_least=1)
    ]
    buffer_memory: Annotated[
        int, setting(33_554_432, "Bytes of records that wait to be sent.", at_least=0)
    ]
    batch_size: Annotated[int, setting(16_384, "Bytes of a batch, and of a block.", at_least=0)]
    linger_ms: Annotated[int, setting(5, "Wait for more records before sending.", at_least=0)]
    max_request_size: Annotated[
        int, setting(1_048_576, "Most bytes of a request, and of a record.", at_least=0)
    ]
    max_block_ms: Annotated[
        int, setting(60_000, "Wait in send for memory and metadata.", at_least=0)
    ]
    delivery_timeout_ms: Annotated[
        int, setting(120_000, "From send to success or failure at the latest.", at_least=0)
    ]
    retries: Annotated[
        int, setting(_MAX_INT, "Attempts after the first.", at_least=0, at_most=_MAX_INT)
    ]
    max_in_flight_requests_per_connection: Annotated[
        int, setting(5, "Unanswered requests on a connection.", at_least=1)
    ]
    compression_type: Annotated[
        str,
        setting(
            "none", "How batches are packed.", one_of=("none", "gzip", "snappy", "lz4", "zstd")
        ),
    ]
    compression_gzip_level: Annotated[int, setting(-1, "1 to 9; -1 is the default.", at_most=9)]
    compression_lz4_level: Annotated[int, setting(9, "1 to 17.", at_least=1, at_most=17)]
    compression_zstd_level: Annotated[int, setting(3, "-131072 to 22.", at_most=22)]
    partitioner: Annotated[
        Any, setting(None, "Chooses partitions; without one: key hash, else sticky.")
    ]
    partitioner_ignore_keys: Annotated[
        bool, setting(False, "Records with keys are spread like those without.")
    ]
    partitioner_adaptive_partitioning_enable: Annotated[
        bool, setting(True, "Slow brokers get fewer records without a key.")
    ]
    partitioner_availability_timeout_ms: Annotated[
        int, setting(0, "A partition whose broker is silent for so long is left out.", at_least=0)
    ]
    key_serializer: Annotated[Any, setting(None, "From key to bytes; bytes are passed on.")]
    value_serializer: Annotated[Any, setting(None, "From value to bytes; bytes are passed on.")]
    interceptors: Annotated[Sequence[Any], setting((), "See every record and its fate.")]
    metadata_max_idle_ms: Annotated[
        int, setting(300_000, "A topic not used for so long is forgotten.", at_least=5_000)
    ]


class ConsumerOptions(CommonOptions, total=False):
    """What `Consumer` takes."""

    group_id: Annotated[str | None, setting(None, "The group; without one: assign, no commits.")]
    group_instance_id: Annotated[str | None, setting(None, "Name of a static member.")]
    group_protocol: Annotated[
        str, setting("classic", "How the group works.", one_of=("classic", "consumer"))
    ]
    group_remote_assignor: Annotated[
        str | None, setting(None, "The broker's assignor, with group_protocol=consumer.")
    ]
    partition_assignment_strategy: Annotated[
        str | Sequence[Any],
        setting(
            ("range", "cooperative-sticky"),
            "Assignors in order of preference: range, roundrobin, sticky, cooperative-sticky.",
        ),
    ]
    session_timeout_ms: Annotated[
        int, setting(45_000, "A member that is silent for so long is out.", at_least=1)
    ]
    heartbeat_interval_ms: Annotated[int, setting(3_000, "Between two heartbeats.", at_least=1)]
    max_poll_interval_ms: Annotated[
        int, setting(300_000, "A member that does not poll for so long leaves.", at_least=1)
    ]
    max_poll_records: Annotated[int, setting(500, "Most records that poll gives.", at_least=1)]
    enable_auto_commit: Annotated[bool, setting(True, "Commit what was polled, by itself.")]
    auto_commit_interval_ms: Annotated[int, setting(5_000, "Between two such commits.", at_least=0)]
    auto_offset_reset: Annotated[
        str,
        setting(
            "latest", "Where to start without an offset: earliest, latest, none, by_duration:…"
        ),
    ]
    isolation_level: Annotated[
        str,
        setting(
            "read_uncommitted",
            "Whether records of open and aborted transactions are seen.",
            one_of=("read_uncommitted", "read_committed"),
        ),
    ]
    fetch_min_bytes: Annotated[int, setting(1, "A broker waits for so many bytes.", at_least=0)]
    fetch_max_wait_ms: Annotated[int, setting(500, "It waits no longer than this.", at_least=0)]
    fetch_max_bytes: Annotated[int, setting(52_428_800, "Most bytes of an answer.", at_least=0)]
    max_partition_fetch_bytes: Annotated[
        int, setting(1_048_576, "Most bytes of a partition in an answer.", at_least=0)
    ]
    check_crcs: Annotated[bool, setting(True, "Whether batches are checked.")]
    client_rack: Annotated[str, setting("", "Where this client is, to read from a near replica.")]
    exclude_internal_topics: Annotated[
        bool, setting(True, "Patterns do not match internal topics.")
    ]
    allow_auto_create_topics: Annotated[bool, setting(True, "Subscribing may create the topic.")]
    key_deserializer: Annotated[Any, setting(None, "From bytes to key.")]
    value_deserializer: Annotated[Any, setting(None, "From bytes to value.")]
    interceptors: Annotated[Sequence[Any], setting((), "See records and commits.")]


class AdminOptions(CommonOptions, total=False):
    """What `Admin` takes."""

    retries: Annotated[
        int, setting(_MAX_INT, "Attempts after the first.", at_least=0, at_most=_MAX_INT)
    ]


def resolve(kind: type[Options], given: Mapping[str, object]) -> Options:
    """All settings of a client: those given, checked, and the defaults of the others.

    ConfigError names the setting and what it may be; of one that does not exist, the nearest.
    """
    declared = settings_of(kind)
    for name in given:
        if name not in declared:
            near = difflib.get_close_matches(name.replace(".", "_"), declared, n=1, cutoff=0.6)
            hint = f": did you mean {near[0]}?" if near else ""
            raise ConfigError(f"there is no setting {name}{hint}")
    found: dict[str, object] = {}
    for name, (base, about) in declared.items():
        value = given.get(name, about.default)
        if value is _REQUIRED:
            raise ConfigError(f"{name} is missing: {about.doc}")
        found[name] = value if value is about.default else _checked(name, value, base, about)
    return cast("Options", found)


def from_properties(
    kind: type[Options], properties: Mapping[str, str]
) -> tuple[dict[str, object], list[str]]:
    """What a Kafka property file says to a client, as keyword arguments, and the names it says in
    vain: settings of other clients, or of Java alone."""
    declared = settings_of(kind)
    known: dict[str, object] = {}
    unknown: list[str] = []
    for name, text in properties.items():
        key = name.replace(".", "_")
        if key in declared and declared[key][0] is not Any:
            known[key] = text
        else:
            unknown.append(name)
    return known, unknown


@cache
def settings_of(kind: type[Any]) -> dict[str, tuple[Any, Setting]]:
    """Every setting of a client: its type and what else is declared of it."""
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        base, about = get_args(hint)
        found[name] = (base, about)
    return found


def servers(settings: CommonOptions) -> list[str]:
    return items(settings["bootstrap_servers"])


def items(value: str | Sequence[str]) -> list[str]:
    """A list setting, which may have been given as text with commas."""
    parts = value.split(",") if isinstance(value, str) else value
    return [part.strip() for part in parts if part.strip()]


def _checked(name: str, value: object, base: Any, about: Setting) -> object:
    types = get_args(base) if isinstance(base, UnionType) else (base,)
    if base is Any or (value is None and type(None) in types):
        return value
    if bool in types:
        value = _bool(name, value)
    elif int in types and str not in types:
        value = _int(name, value, about)
    elif types == (str,) or types == (str, type(None)):
        if not isinstance(value, str):
            raise ConfigError(f"{name}={value!r}: it must be text")
    elif isinstance(value, bytes | Mapping) or not isinstance(value, int | str | Sequence):
        raise ConfigError(f"{name}={value!r} does not fit: {about.doc}")
    if about.one_of:
        by_folded = {each.lower(): each for each in about.one_of}
        chosen = by_folded.get(str(value).lower())
        if chosen is None:
            raise ConfigError(f"{name}={value}: it is one of {', '.join(about.one_of)}")
        value = chosen
    return value


def _bool(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = value.lower() if isinstance(value, str) else ""
    if text not in ("true", "false"):
        raise ConfigError(f"{name}={value!r}: it is true or false")
    return text == "true"


def _int(name: str, value: object, about: Setting) -> int:
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            raise ConfigError(f"{name}={value!r}: it must be a whole number") from None
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name}={value!r}: it must be a whole number")
    low, high = about.at_least, about.at_most
    if (low is not None and value < low) or (high is not None and value > high):
        bounds = [f"at least {low}"] if low is not None else []
        bounds += [f"at most {high}"] if high is not None else []
        raise ConfigError(f"{name}={value}: it must be {' and '.join(bounds)}")
    return value
