"""A user name with a password, from the settings of a client."""

from typing import Final, NamedTuple

from penstock.core.errors import KafkaError
from penstock.net.client.errors import ConfigError
from penstock.net.client.sasl.client import SaslSettings
from penstock.security.jaas import LoginModule, parse_jaas

PASSWORD_SETTINGS: Final = ("sasl_plain_username", "sasl_plain_password")


class Credentials(NamedTuple):
    """A user with a password, or a delegation token with its HMAC as the password.

    The password is not part of the repr.
    """

    user: str
    password: str
    is_token: bool = False

    def __repr__(self) -> str:
        return f"Credentials({self.user!r})"


def password_credentials(settings: SaslSettings, login_module: str) -> Credentials:
    """Returns the user and password of the settings. `login_module` is the class that
    `sasl_jaas_config` must name.

    Raises ConfigError when they are missing, given twice, or cannot be sent.
    """
    values = (settings.username, settings.password)
    if settings.jaas_config is not None:
        if values != (None, None):
            raise ConfigError(
                "set `sasl_jaas_config`, or `sasl_plain_username` and `sasl_plain_password`, "
                "not both"
            )
        credentials = _from_jaas(settings.jaas_config, login_module)
        return credentials._replace(is_token=credentials.is_token or settings.is_token)
    for setting, value in zip(PASSWORD_SETTINGS, values, strict=True):
        if not value:
            raise ConfigError(
                f"`{setting}` is missing: `sasl_mechanism`={settings.mechanism} needs it"
            )
    user, password = values
    return _validate(
        Credentials(user or "", password or "", settings.is_token),
        "`sasl_plain_username`/password",
    )


def _from_jaas(text: str, expected_module: str) -> Credentials:
    module = _parse_module(text)
    if module.name != expected_module:
        raise ConfigError(
            f"`sasl_jaas_config` has {module.name}, but `sasl_mechanism` needs {expected_module}",
            remedy="change one",
        )
    values = []
    for option in ("username", "password"):
        value = module.options.get(option)
        if not value:
            raise ConfigError(
                f"`sasl_jaas_config` has no {option}", remedy=f'write {option}="…" before the ;'
            )
        values.append(value)
    is_token = module.options.get("tokenauth", "").lower() == "true"
    return _validate(Credentials(values[0], values[1], is_token), "`sasl_jaas_config`")


def _parse_module(text: str) -> LoginModule:
    try:
        modules = parse_jaas(text)
    except KafkaError as error:
        message = error.message.replace("sasl.jaas.config", "`sasl_jaas_config`", 1)
        raise ConfigError(message) from None
    if len(modules) != 1:
        raise ConfigError(f"`sasl_jaas_config` has {len(modules)} login modules: one is expected")
    return modules[0]


def _validate(credentials: Credentials, setting: str) -> Credentials:
    try:
        encoded = (credentials.user + credentials.password).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{setting}: user name or password is not valid Unicode") from None
    if b"\0" in encoded:
        raise ConfigError(f"{setting}: user name and password cannot contain a NUL character")
    return credentials
