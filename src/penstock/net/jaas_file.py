"""Reads the JAAS file of this process, which KAFKA_OPTS names as for Java programs (X2)."""

import os
from collections.abc import Sequence

from penstock.core.errors import ErrorCode, KafkaError
from penstock.security.jaas_file import VARIABLE, find_login, jaas_file_path


def login_of_jaas_file(sections: Sequence[str], mechanism: str) -> str | None:
    """Returns what the file has for a mechanism in the first of the sections that exists.

    None if there is no such file or entry. Raises KafkaError if the file is not valid.
    """
    path = jaas_file_path(os.environ)
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"the JAAS file {path} cannot be read ({cause})",
            subject=VARIABLE,
            remedy="correct java.security.auth.login.config, or remove it",
        ) from None
    try:
        return find_login(text, sections, mechanism)
    except KafkaError as error:
        cause = error.cause.removeprefix("sasl.jaas.config: ")
        raise KafkaError(ErrorCode.INVALID_CONFIG, cause, subject=f"the JAAS file {path}") from None
