"""The settings of GSSAPI logins: Kafka's names, and kafka-python's `sasl_kerberos_domain_name`."""

from typing import Annotated, TypedDict

from penstock.client.setting import Setting


class KerberosOptions(TypedDict, total=False):
    """The settings of every client that logs in with Kerberos tickets."""

    sasl_kerberos_service_name: Annotated[
        str | None, Setting(None, "Service in the principal of the brokers; kafka if not set.")
    ]
    sasl_kerberos_domain_name: Annotated[
        str | None, Setting(None, "Host in the principal of the brokers; if not set, their own.")
    ]
    sasl_kerberos_ticket_renew_window_factor: Annotated[
        str | float, Setting(0.8, "Part of its lifetime after which a ticket is replaced.")
    ]
    sasl_kerberos_ticket_renew_jitter: Annotated[
        str | float, Setting(0.05, "Random part of the lifetime that is added to it.")
    ]
    sasl_kerberos_min_time_before_relogin: Annotated[
        int, Setting(60_000, "Shortest time in ms between two tickets.", at_least=0)
    ]
    sasl_kerberos_kinit_cmd: Annotated[
        str, Setting("/usr/bin/kinit", "Kafka's command in property files; of no effect.")
    ]
