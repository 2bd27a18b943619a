"""The names of internal topics, which brokers create for their coordinators."""

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"

INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC})
"""Clients may read them, but cannot create them, and write them only on purpose."""

ADMIN_CLIENT_ID = "__admin_client"
"""The client id of a client that writes internal topics on purpose."""
