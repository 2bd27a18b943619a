"""The Kerberos library, which is imported when a login first needs it."""

from types import ModuleType
from typing import Any, Final

from penstock.core.errors import ErrorCode, KafkaError

_KDC_IS_AWAY: Final = frozenset(
    code & 0xFFFFFFFF
    for code in (
        -1765328228,  # KRB5_KDC_UNREACH
        -1765328355,  # KRB5KDC_ERR_SVC_UNAVAILABLE
    )
)


def load_gssapi() -> ModuleType:
    """Raises KafkaError with the remedy if the library is not installed."""
    try:
        import gssapi
    except (ImportError, OSError) as error:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"GSSAPI needs the Python package gssapi, which cannot be imported ({error})",
            remedy='run pip install "penstock[kerberos]", which needs the headers of Kerberos '
            "(Debian: libkrb5-dev)",
        ) from None
    return gssapi


def new_security_context(**options: Any) -> Any:
    """Returns a security context whose `step` raises errors at once, not when it is next used."""
    context = load_gssapi().SecurityContext(**options)
    context.__DEFER_STEP_ERRORS__ = False
    return context


def acquire_keys(keytab: str, principal: str | None) -> Any:
    """Returns the credentials of a server with the keys of a principal, or of all, in a keytab.

    Raises the library's GSSError if it has none.
    """
    gssapi = load_gssapi()
    name = None
    if principal is not None:
        name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
    return gssapi.Credentials(
        usage="accept",
        name=name,
        mechs=[gssapi.MechType.kerberos],
        store={"keytab": f"FILE:{keytab}"},
    )


def default_realm() -> str:
    """Returns the default realm of krb5.conf; empty if there is none."""
    gssapi = load_gssapi()
    try:
        name = gssapi.Name("nobody", gssapi.NameType.kerberos_principal)
        return str(name.canonicalize(gssapi.MechType.kerberos)).rpartition("@")[2]
    except gssapi.exceptions.GSSError:
        return ""


def is_kdc_away(error: Exception) -> bool:
    """Returns whether an error of the library says that no KDC could be asked."""
    return getattr(error, "min_code", 0) & 0xFFFFFFFF in _KDC_IS_AWAY


def gss_error_text(error: Exception) -> str:
    """Returns what the library says about an error of it, in one line, without its codes."""
    gssapi = load_gssapi()
    if not isinstance(error, gssapi.exceptions.GSSError):
        return str(error)
    # The minor status is Kerberos's own reason. Where it has none, it says that all went well.
    statuses = error.get_all_statuses(error.min_code, False)
    if not error.min_code or statuses == ["Success"]:
        statuses = error.get_all_statuses(error.maj_code, True)
    return " ".join("; ".join(status for status in statuses if status).split())
