"""The settings of the clients: Kafka's names in snake_case, Kafka's defaults.

Each client has one declaration, a TypedDict: its keys are the keyword arguments of the client, with
their types, and `resolve` adds the defaults. So a setting is declared once, editors complete it,
and code reads it as `settings["linger_ms"]`.
"""

import difflib
from collections.abc import Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, cast, get_args, get_type_hints

from penstock.client.errors import ConfigError
from penstock.client.kerberos_settings import KerberosOptions
from penstock.client.oauth_settings import OAuthOptions
from penstock.client.setting import Setting as Setting

Options = TypeVar("Options", bound=Mapping[str, object])

_REQUIRED: Final = object()


_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MAX_INT = 2**31 - 1


class CommonOptions(OAuthOptions, KerberosOptions, total=False):
    """The settings of every client."""

    bootstrap_servers: Annotated[
        str | Sequence[str],
        Setting(
            _REQUIRED, "Brokers to connect to first: host:port, as a list or separated by commas."
        ),
    ]
    client_id: Annotated[str, Setting("", "Name of this client in logs, metrics and quotas.")]
    request_timeout_ms: Annotated[
        int,
        Setting(30_000, "Time to wait for a response; then the connection is closed.", at_least=0),
    ]
    default_api_timeout_ms: Annotated[
        int,
        Setting(
            60_000, "Time for a call without a timeout of its own, including retries.", at_least=0
        ),
    ]
    retry_backoff_ms: Annotated[int, Setting(100, "Delay before the first retry.", at_least=0)]
    retry_backoff_max_ms: Annotated[
        int, Setting(1_000, "Longest delay between two retries.", at_least=0)
    ]
    reconnect_backoff_ms: Annotated[
        int, Setting(50, "Delay before the first reconnection to a broker.", at_least=0)
    ]
    reconnect_backoff_max_ms: Annotated[
        int, Setting(1_000, "Longest delay between two connections to a broker.", at_least=0)
    ]
    socket_connection_setup_timeout_ms: Annotated[
        int, Setting(10_000, "Time to establish a connection; it doubles on failure.", at_least=1)
    ]
    socket_connection_setup_timeout_max_ms: Annotated[
        int, Setting(30_000, "Longest time to establish a connection.", at_least=1)
    ]
    connections_max_idle_ms: Annotated[
        int, Setting(540_000, "Idle connections are closed after this time.")
    ]
    send_buffer_bytes: Annotated[
        int, Setting(-1, "SO_SNDBUF; -1 is the system's default.", at_least=-1)
    ]
    receive_buffer_bytes: Annotated[
        int, Setting(-1, "SO_RCVBUF; -1 is the system's default.", at_least=-1)
    ]
    metadata_max_age_ms: Annotated[
        int, Setting(300_000, "Metadata older than this is updated.", at_least=0)
    ]
    metadata_recovery_strategy: Annotated[
        str,
        Setting(
            "rebootstrap",
            "What to do when none of the known brokers can be reached.",
            one_of=("none", "rebootstrap"),
        ),
    ]
    metadata_recovery_rebootstrap_trigger_ms: Annotated[
        int,
        Setting(300_000, "After so long without metadata, the bootstrap servers are used again."),
    ]
    metrics_num_samples: Annotated[int, Setting(2, "Number of samples of a metric.", at_least=1)]
    metrics_sample_window_ms: Annotated[
        int, Setting(30_000, "Length of a sample of a metric.", at_least=0)
    ]
    security_protocol: Annotated[
        str, Setting("PLAINTEXT", "Whether to use TLS (SSL) and a login (SASL).", one_of=_PROTOCOLS)
    ]
    sasl_mechanism: Annotated[
        str, Setting("GSSAPI", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI.")
    ]
    sasl_jaas_config: Annotated[
        str | None, Setting(None, "Login in the format of Kafka's property files.")
    ]
    sasl_plain_username: Annotated[str | None, Setting(None, "User for PLAIN and SCRAM.")]
    sasl_plain_password: Annotated[str | None, Setting(None, "Password for PLAIN and SCRAM.")]
    sasl_tokenauth: Annotated[
        bool,
        Setting(False, "Whether user and password are the id and HMAC of a delegation token."),
    ]
    ssl_truststore_location: Annotated[str | None, Setting(None, "File of trusted certificates.")]
    ssl_truststore_type: Annotated[str, Setting("JKS", "PEM or PKCS12.")]
    ssl_truststore_password: Annotated[str | None, Setting(None, "Password of the truststore.")]
    ssl_truststore_certificates: Annotated[
        str | None, Setting(None, "Trusted certificates as text in PEM.")
    ]
    ssl_keystore_location: Annotated[
        str | None, Setting(None, "File with this client's key and certificates.")
    ]
    ssl_keystore_type: Annotated[str, Setting("JKS", "PEM or PKCS12.")]
    ssl_keystore_password: Annotated[str | None, Setting(None, "Password of the keystore.")]
    ssl_keystore_key: Annotated[str | None, Setting(None, "This client's key as text in PEM.")]
    ssl_keystore_certificate_chain: Annotated[
        str | None, Setting(None, "This client's certificates as text in PEM.")
    ]
    ssl_key_password: Annotated[str | None, Setting(None, "Password of this client's key.")]
    ssl_endpoint_identification_algorithm: Annotated[
        str, Setting("https", "https verifies the broker's host name, an empty text does not.")
    ]
    ssl_enabled_protocols: Annotated[
        str | Sequence[str], Setting(("TLSv1.2", "TLSv1.3"), "Allowed versions of TLS.")
    ]
    ssl_cipher_suites: Annotated[
        str | Sequence[str], Setting((), "Allowed cipher suites; empty allows OpenSSL's defaults.")
    ]
    ssl_cafile: Annotated[str | None, Setting(None, "File with trusted certificates in PEM.")]
    ssl_certfile: Annotated[
        str | None, Setting(None, "File with this client's certificates in PEM.")
    ]
    ssl_keyfile: Annotated[str | None, Setting(None, "File with this client's key in PEM.")]
    ssl_check_hostname: Annotated[
        bool, Setting(True, "Whether the broker's host name is verified.")
    ]
    ssl_context: Annotated[
        Any, Setting(None, "An ssl.SSLContext, instead of all other ssl settings.")
    ]


class ProducerOptions(CommonOptions, total=False):
    """The settings of `Producer`."""

    acks: Annotated[
        str | int,
        Setting(
            "all", "Replicas that must store a record: 0 none, 1 the leader, all the in-sync ones."
        ),
    ]
    enable_idempotence: Annotated[
        bool,
        Setting(
            None, "Stores each record once and in order, despite retries. On if acks allows it."
        ),
    ]
    transactional_id: Annotated[
        str | None, Setting(None, "Name of the producer across restarts; enables transactions.")
    ]
    transaction_timeout_ms: Annotated[
        int, Setting(60_000, "A transaction that is open for so long is aborted.", at_least=1)
    ]
    buffer_memory: Annotated[
        int, Setting(33_554_432, "Bytes of memory for records that wait to be sent.", at_least=0)
    ]
    batch_size: Annotated[
        int, Setting(16_384, "Bytes of a batch, and of a block of buffer_memory.", at_least=0)
    ]
    linger_ms: Annotated[int, Setting(5, "Time that a batch waits for more records.", at_least=0)]
    max_request_size: Annotated[
        int, Setting(1_048_576, "Largest request and largest record in bytes.", at_least=0)
    ]
    max_block_ms: Annotated[
        int, Setting(60_000, "Longest wait of send for memory and metadata.", at_least=0)
    ]
    delivery_timeout_ms: Annotated[
        int, Setting(120_000, "Longest time from send to success or failure.", at_least=0)
    ]
    retries: Annotated[
        int, Setting(_MAX_INT, "Attempts after the first.", at_least=0, at_most=_MAX_INT)
    ]
    max_in_flight_requests_per_connection: Annotated[
        int, Setting(5, "Requests without a response on a connection.", at_least=1)
    ]
    compression_type: Annotated[
        str,
        Setting(
            "none", "Compression of batches.", one_of=("none", "gzip", "snappy", "lz4", "zstd")
        ),
    ]
    compression_gzip_level: Annotated[int, Setting(-1, "1 to 9; -1 is the default.", at_most=9)]
    compression_lz4_level: Annotated[int, Setting(9, "1 to 17.", at_least=1, at_most=17)]
    compression_zstd_level: Annotated[int, Setting(3, "-131072 to 22.", at_most=22)]
    partitioner: Annotated[
        Any,
        Setting(None, "Chooses partitions; by default the key's hash, without a key a sticky one."),
    ]
    partitioner_ignore_keys: Annotated[
        bool, Setting(False, "Records with keys are distributed like those without.")
    ]
    partitioner_adaptive_partitioning_enable: Annotated[
        bool, Setting(True, "Slow brokers get fewer of the records without a key.")
    ]
    partitioner_availability_timeout_ms: Annotated[
        int,
        Setting(0, "Partitions whose broker is not ready for so long are not chosen.", at_least=0),
    ]
    key_serializer: Annotated[Any, Setting(None, "Serializes keys; without one they are bytes.")]
    value_serializer: Annotated[
        Any, Setting(None, "Serializes values; without one they are bytes.")
    ]
    interceptors: Annotated[
        Sequence[Any], Setting((), "Objects that see every record and its outcome.")
    ]
    metadata_max_idle_ms: Annotated[
        int,
        Setting(
            300_000, "Metadata of a topic that is unused for so long is dropped.", at_least=5_000
        ),
    ]


class ConsumerOptions(CommonOptions, total=False):
    """The settings of `Consumer`."""

    group_id: Annotated[
        str | None, Setting(None, "The consumer group; without one, use assign, and do not commit.")
    ]
    group_instance_id: Annotated[str | None, Setting(None, "Name of a static member of the group.")]
    group_protocol: Annotated[
        str, Setting("classic", "The protocol of the group.", one_of=("classic", "consumer"))
    ]
    group_remote_assignor: Annotated[
        str | None, Setting(None, "Assignor of the broker, with group_protocol=consumer.")
    ]
    partition_assignment_strategy: Annotated[
        str | Sequence[Any],
        Setting(
            ("range", "cooperative-sticky"),
            "Assignors in order of preference: range, roundrobin, sticky, cooperative-sticky.",
        ),
    ]
    session_timeout_ms: Annotated[
        int, Setting(45_000, "A member without heartbeats for so long is removed.", at_least=1)
    ]
    heartbeat_interval_ms: Annotated[
        int, Setting(3_000, "Time between two heartbeats.", at_least=1)
    ]
    max_poll_interval_ms: Annotated[
        int,
        Setting(300_000, "A member that does not poll for so long leaves the group.", at_least=1),
    ]
    max_poll_records: Annotated[int, Setting(500, "Most records that poll returns.", at_least=1)]
    enable_auto_commit: Annotated[bool, Setting(True, "Commits polled records automatically.")]
    auto_commit_interval_ms: Annotated[
        int, Setting(5_000, "Time between two automatic commits.", at_least=0)
    ]
    auto_offset_reset: Annotated[
        str,
        Setting(
            "latest", "Start without a committed offset: earliest, latest, none, by_duration:…"
        ),
    ]
    isolation_level: Annotated[
        str,
        Setting(
            "read_uncommitted",
            "Whether records of open and aborted transactions are returned.",
            one_of=("read_uncommitted", "read_committed"),
        ),
    ]
    fetch_min_bytes: Annotated[
        int, Setting(1, "A broker responds once it has so many bytes.", at_least=0)
    ]
    fetch_max_wait_ms: Annotated[
        int, Setting(500, "A broker responds after this time at the latest.", at_least=0)
    ]
    fetch_max_bytes: Annotated[int, Setting(52_428_800, "Most bytes of a response.", at_least=0)]
    max_partition_fetch_bytes: Annotated[
        int, Setting(1_048_576, "Most bytes of a partition in a response.", at_least=0)
    ]
    check_crcs: Annotated[bool, Setting(True, "Whether the checksums of batches are verified.")]
    client_rack: Annotated[str, Setting("", "Rack of this client, to read from a replica nearby.")]
    exclude_internal_topics: Annotated[
        bool, Setting(True, "Patterns do not match internal topics.")
    ]
    allow_auto_create_topics: Annotated[bool, Setting(True, "Subscribing may create the topic.")]
    key_deserializer: Annotated[Any, Setting(None, "Deserializes keys.")]
    value_deserializer: Annotated[Any, Setting(None, "Deserializes values.")]
    interceptors: Annotated[Sequence[Any], Setting((), "Objects that see records and commits.")]


class AdminOptions(CommonOptions, total=False):
    """The settings of `Admin`."""

    retries: Annotated[
        int, Setting(_MAX_INT, "Attempts after the first.", at_least=0, at_most=_MAX_INT)
    ]


def resolve(kind: type[Options], options: Mapping[str, object]) -> Options:
    """Returns all settings of a client: the given options, checked, and defaults.

    Raises ConfigError with the name of the setting and the allowed values, or the nearest name
    for a setting that does not exist.
    """
    declared = settings_of(kind)
    for name in options:
        if name not in declared:
            near = difflib.get_close_matches(name.replace(".", "_"), declared, n=1, cutoff=0.6)
            hint = f": did you mean {near[0]}?" if near else ""
            raise ConfigError(f"there is no setting {name}{hint}")
    resolved: dict[str, object] = {}
    for name, (base, spec) in declared.items():
        value = options.get(name, spec.default)
        if value is _REQUIRED:
            raise ConfigError(f"`{name}` is missing: {spec.doc}")
        resolved[name] = value if value is spec.default else _parse(name, value, base, spec)
    return cast("Options", resolved)


def from_properties(
    kind: type[Options], properties: Mapping[str, str]
) -> tuple[dict[str, object], list[str]]:
    """Returns the keyword arguments in a Kafka property file, and the names of other properties:
    settings of other clients, or of Java only."""
    declared = settings_of(kind)
    options: dict[str, object] = {}
    unknown_names: list[str] = []
    for name, text in properties.items():
        key = name.replace(".", "_")
        if key in declared and declared[key][0] is not Any:
            options[key] = text
        else:
            unknown_names.append(name)
    return options, unknown_names


@cache
def settings_of(kind: type[Any]) -> dict[str, tuple[Any, Setting]]:
    """Returns every setting of a client: its type and its declaration."""
    declared = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        base, spec = get_args(hint)
        declared[name] = (base, spec)
    return declared


def servers(settings: CommonOptions) -> list[str]:
    return items(settings["bootstrap_servers"])


def items(value: str | Sequence[str]) -> list[str]:
    """Returns the items of a list setting, which may be a text with commas."""
    parts = value.split(",") if isinstance(value, str) else value
    return [part.strip() for part in parts if part.strip()]


def _parse(name: str, value: object, base: Any, spec: Setting) -> object:
    types = get_args(base) if isinstance(base, UnionType) else (base,)
    if base is Any or (value is None and type(None) in types):
        return value
    if bool in types:
        value = _bool(name, value)
    elif int in types and str not in types:
        value = _int(name, value, spec)
    elif types == (str,) or types == (str, type(None)):
        if not isinstance(value, str):
            raise ConfigError(f"`{name}`={value!r}: it must be text")
    elif float in types:
        value = _float(name, value)
    elif isinstance(value, bytes | Mapping) or not isinstance(value, int | str | Sequence):
        raise ConfigError(f"`{name}`={value!r} is not valid: {spec.doc}")
    if spec.one_of:
        choices = {choice.lower(): choice for choice in spec.one_of}
        choice = choices.get(str(value).lower())
        if choice is None:
            raise ConfigError(f"`{name}`={value}: it must be one of {', '.join(spec.one_of)}")
        value = choice
    return value


def _bool(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = value.lower() if isinstance(value, str) else ""
    if text not in ("true", "false"):
        raise ConfigError(f"`{name}`={value!r}: it must be true or false")
    return text == "true"


def _float(name: str, value: object) -> float:
    try:
        number = float(value) if isinstance(value, str | int | float) else -1.0
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise ConfigError(f"`{name}`={value!r}: it must be a number from 0 to 1")
    return number


def _int(name: str, value: object, spec: Setting) -> int:
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            raise ConfigError(f"`{name}`={value!r}: it must be a whole number") from None
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"`{name}`={value!r}: it must be a whole number")
    low, high = spec.at_least, spec.at_most
    if (low is not None and value < low) or (high is not None and value > high):
        bounds = [f"at least {low}"] if low is not None else []
        bounds += [f"at most {high}"] if high is not None else []
        raise ConfigError(f"`{name}`={value}: it must be {' and '.join(bounds)}")
    return value
