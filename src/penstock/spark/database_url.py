"""Addresses of databases, as SQLAlchemy reads them: `postgresql://user:password@host/database`."""

import re

_PASSWORD = re.compile(
    # To the last @: a password may contain one, although it should be written as %40.
    r"(?P<user>://[^/:@?]*:).*@|(?P<name>[?&][^=&]*(?:pass|pwd|secret|token)[^=&]*=)[^&]*",
    re.IGNORECASE | re.DOTALL,
)


def without_password(url: str) -> str:
    """Returns the address with `***` in place of its passwords, for messages and plans."""
    shown = _PASSWORD.sub(lambda match: f"{match['user']}***@" if match["user"] else match[0], url)
    return _PASSWORD.sub(lambda match: f"{match['name']}***" if match["name"] else match[0], shown)
