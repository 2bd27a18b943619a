"""Metrics of connections, memory, fetch sessions and the audit log."""

from penstock.broker.assembly import BrokerAssembly
from penstock.broker.metrics.exposition import Exposition
from penstock.broker.pacer import Steps


def collect_network(exposition: Exposition, parts: BrokerAssembly) -> Steps[None]:
    yield
    admission = parts.server.admission
    prefix = "kafka_server_socketservermetrics"
    connections = exposition.gauge(f"{prefix}_connections", "Open connections by listener.")
    created = exposition.counter(
        f"{prefix}_connectioncreations_total", "Connections that a listener has accepted."
    )
    failed_logins = exposition.counter(
        f"{prefix}_failedauthentications_total", "Refused SASL logins by listener."
    )
    for spec in parts.broker.config.listeners:
        connections.add(admission.by_listener[spec.name], listener=spec.name)
        created.add(admission.accepted[spec.name], listener=spec.name)
        failed_logins.add(parts.sessions.failed_logins[spec.name], listener=spec.name)
    exposition.counter(
        "penstock_connections_refused_total", "Connections closed for lack of descriptors."
    ).add(admission.refused_sockets)
    exposition.gauge(
        "kafka_network_requestchannel_requestqueuesize", "Requests received and not begun."
    ).add(parts.server.backlog.count)
    memory = parts.broker.workers.memory
    exposition.gauge(
        "penstock_request_memory_bytes", "Memory reserved for the requests in progress."
    ).add(memory.used)
    exposition.gauge(
        "penstock_request_memory_limit_bytes", "The limit of that memory: request.memory.max.bytes."
    ).add(memory.total)
    exposition.gauge("penstock_request_memory_waiting", "Requests that wait for memory.").add(
        memory.waiting
    )
    exposition.gauge(
        "kafka_server_fetchsessioncache_numincrementalfetchsessions", "Fetch sessions."
    ).add(len(parts.broker.fetch_sessions))
    if parts.audit_log is not None:
        lost = exposition.counter(
            "penstock_audit_events_lost_total", "Events of the audit log that were not written."
        )
        lost.add(parts.audit_log.dropped, reason="queue")
        lost.add(parts.audit_log.failed, reason="disk")
