"""`penstock doctor`: finds out why a cluster cannot be used from here (E3, E4, E6, E7)."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import complete
from penstock.cli.options import argument, flag, option
from penstock.cli.output import Output, UsageError
from penstock.cli.session import Session, command_name, with_session
from penstock.core.errors import replace_names

if TYPE_CHECKING:
    from penstock.cli.doctor.diagnosis import StepResult

_STYLES = {"ok": "32", "warning": "33", "failed": "1;31", "skipped": "2"}


@with_session
def doctor(
    session: Session,
    address: str | None = argument(
        "ADDRESS", default=None, help="host:port of a broker; else --bootstrap-server."
    ),
    topic: str | None = option(
        "--topic",
        "-t",
        help="Write a record to this topic and read it back, instead of a temporary topic.",
        autocompletion=complete.topics,
    ),
    read_only: bool = flag("--read-only", help="Write nothing: no topic, no record."),
    cluster: bool = flag(
        "--cluster",
        help="Examine all brokers instead: who cannot be reached, replicas, balance, settings, "
        "clocks, packet loss.",
    ),
    security: Path | None = option(
        "--security",
        metavar="SERVER.PROPERTIES",
        help="Explain the security of a broker's settings instead: who can get in where, as whom, "
        "with which rights.",
    ),
) -> None:
    """Check every step from the address to a record there and back; explain the first failure.

    Steps: address, name, connection, TLS, versions, login, metadata, advertised listeners, topic,
    produce, fetch, clock, group coordinator. Logins and TLS are set with -X or --command-config as
    for every other command. The exit code is 1 if something is wrong, 0 if there are only warnings.
    """
    if security is not None:
        from penstock.cli.doctor.security import report_security

        report_security(session.out, security)
        return
    if cluster and topic is not None:
        raise UsageError("--cluster and --topic exclude each other")
    from penstock.client.settings import ConsumerOptions

    results: list[StepResult] = []

    def report(result: "StepResult") -> None:
        result = result._replace(
            text=replace_names(result.text, command_name),
            remedy=result.remedy and replace_names(result.remedy, command_name),
        )
        results.append(result)
        if not session.out.as_json:
            _print(session.out, result)

    options = session.options(ConsumerOptions)
    target = address if address is not None else str(options["bootstrap_servers"])
    if cluster:
        from penstock.cli.doctor.cluster_examination import ClusterExamination

        session.bootstrap_server = target
        options["bootstrap_servers"] = target
        is_healthy = ClusterExamination(session, options, report, read_only=read_only).run()
    else:
        from penstock.cli.doctor.diagnosis import Diagnosis, run_diagnosis

        diagnosis = Diagnosis(target, options, report, topic=topic, read_only=read_only)
        is_healthy = run_diagnosis(diagnosis)
    if session.out.as_json:
        session.out.document(_document(results, is_healthy))
    elif is_healthy:
        has_warnings = any(result.status == "warning" for result in results)
        session.out.line("it works; see the warnings" if has_warnings else "all is well")
    if not is_healthy:
        raise SystemExit(1)


def _document(results: "list[StepResult]", is_healthy: bool) -> dict[str, object]:
    failure = next((result for result in results if result.status == "failed"), None)
    return {
        "ok": is_healthy,
        "problem": None
        if failure is None
        else {
            "step": failure.step,
            "error": failure.code,
            "cause": failure.text,
            "todo": failure.remedy,
        },
        "steps": [
            {
                "step": result.step,
                "status": result.status,
                "text": result.text,
                "todo": result.remedy,
                "milliseconds": round(result.milliseconds, 1),
                **({"details": result.details} if result.details else {}),
            }
            for result in results
        ],
    }


def _print(out: Output, result: "StepResult") -> None:
    status = f"{result.status.value:<8}"
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        status = f"\x1b[{_STYLES[result.status.value]}m{status}\x1b[0m"
    out.line(f"{status} {result.step:<21} {result.text}  ({result.milliseconds:.0f} ms)")
    if result.remedy is not None:
        out.line(f"{'':<8} {'':<21} → {result.remedy}")
