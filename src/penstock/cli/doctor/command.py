"""`penstock doctor`: what is wrong between here and a cluster (E3, E4, E6, E7)."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import complete
from penstock.cli.output import Output
from penstock.cli.session import Session, in_commands, with_session

if TYPE_CHECKING:
    from penstock.cli.doctor.examination import Finding

_STYLES = {"ok": "32", "warning": "33", "failed": "1;31", "skipped": "2"}


@with_session
def doctor(
    session: Session,
    address: Annotated[
        str | None,
        typer.Argument(
            metavar="ADDRESS",
            help="host:port of a broker; else --bootstrap-server.",
            show_default=False,
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            "-t",
            help="Write a record to this topic and read it again, instead of one made for it.",
            autocompletion=complete.topics,
            show_default=False,
        ),
    ] = None,
    read_only: Annotated[
        bool,
        typer.Option("--read-only", help="Write nothing: no topic, no record."),
    ] = False,
) -> None:
    """Walk from the address to a record there and back, and explain the first thing that is wrong.

    Steps: address, name, connection, TLS, versions, login, metadata, advertised listeners, topic,
    produce, fetch, clock, group coordinator. Logins and TLS are set with -X or --command-config as
    for every other client. The exit code is 1 if something is wrong; warnings leave it 0.
    """
    from penstock.cli.doctor.examination import Examination, run_examination
    from penstock.client.settings import ConsumerOptions

    findings: list[Finding] = []

    def tell(found: "Finding") -> None:
        found = found._replace(
            text=in_commands(found.text),
            todo=None if found.todo is None else in_commands(found.todo),
        )
        findings.append(found)
        if not session.out.as_json:
            _print(session.out, found)

    options = session.options(ConsumerOptions)
    where = address if address is not None else str(options["bootstrap_servers"])
    examination = Examination(where, options, tell, topic=topic, read_only=read_only)
    is_well = run_examination(examination)
    if session.out.as_json:
        session.out.document(_document(findings, is_well))
    elif is_well:
        session.out.line("all is well" if not _warned(findings) else "it works; see the warnings")
    if not is_well:
        raise SystemExit(1)


def _warned(findings: "list[Finding]") -> bool:
    return any(each.status == "warning" for each in findings)


def _document(findings: "list[Finding]", is_well: bool) -> dict[str, object]:
    wrong = next((each for each in findings if each.status == "failed"), None)
    return {
        "ok": is_well,
        "problem": None
        if wrong is None
        else {"step": wrong.step, "error": wrong.code, "cause": wrong.text, "todo": wrong.todo},
        "steps": [
            {
                "step": each.step,
                "status": each.status,
                "text": each.text,
                "todo": each.todo,
                "milliseconds": round(each.milliseconds, 1),
                **({"details": each.details} if each.details else {}),
            }
            for each in findings
        ],
    }


def _print(out: Output, found: "Finding") -> None:
    word = f"{found.status.value:<8}"
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        word = f"\x1b[{_STYLES[found.status.value]}m{word}\x1b[0m"
    out.line(f"{word} {found.step:<21} {found.text}  ({found.milliseconds:.0f} ms)")
    if found.todo is not None:
        out.line(f"{'':<8} {'':<21} → {found.todo}")
