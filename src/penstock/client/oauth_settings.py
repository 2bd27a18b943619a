"""The settings of OAUTHBEARER logins: Kafka's names, and kafka-python's token provider."""

from typing import Annotated, Any, TypedDict

from penstock.client.setting import Setting


class OAuthOptions(TypedDict, total=False):
    """The settings of every client that logs in with access tokens."""

    sasl_oauthbearer_token_endpoint_url: Annotated[
        str | None, Setting(None, "Token endpoint of the identity provider, or file:// of a token.")
    ]
    sasl_oauthbearer_client_credentials_client_id: Annotated[
        str | None, Setting(None, "Client id for the token endpoint.")
    ]
    sasl_oauthbearer_client_credentials_client_secret: Annotated[
        str | None, Setting(None, "Client secret for the token endpoint.")
    ]
    sasl_oauthbearer_scope: Annotated[str | None, Setting(None, "Scope to request.")]
    sasl_oauthbearer_header_urlencode: Annotated[
        bool, Setting(False, "Whether client id and secret are URL-encoded, as RFC 6749 says.")
    ]
    sasl_oauthbearer_sub_claim_name: Annotated[
        str, Setting("sub", "Claim of a token with the name of the user.")
    ]
    sasl_oauth_token_provider: Annotated[
        Any, Setting(None, "Object whose token() returns an access token, or such a function.")
    ]
    sasl_login_callback_handler_class: Annotated[
        str | None, Setting(None, "Kafka's class name in property files; of no effect.")
    ]
    sasl_login_connect_timeout_ms: Annotated[
        int, Setting(10_000, "Time to connect to the token endpoint.", at_least=1)
    ]
    sasl_login_read_timeout_ms: Annotated[
        int, Setting(10_000, "Time for the response of the token endpoint.", at_least=1)
    ]
    sasl_login_retry_backoff_ms: Annotated[
        int, Setting(100, "First delay between requests to the token endpoint.", at_least=1)
    ]
    sasl_login_retry_backoff_max_ms: Annotated[
        int, Setting(10_000, "Time for all attempts to obtain a token.", at_least=0)
    ]
    sasl_login_refresh_window_factor: Annotated[
        str | float, Setting(0.8, "Part of its lifetime after which a token is replaced.")
    ]
    sasl_login_refresh_window_jitter: Annotated[
        str | float, Setting(0.05, "Random part of the lifetime that is added to it.")
    ]
    sasl_login_refresh_min_period_seconds: Annotated[
        int, Setting(60, "Shortest time between two tokens.", at_least=0, at_most=900)
    ]
    sasl_login_refresh_buffer_seconds: Annotated[
        int, Setting(300, "Time before its end at which a token is replaced.", at_least=0)
    ]
