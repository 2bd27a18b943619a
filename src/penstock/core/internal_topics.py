"""The topics that the broker makes for itself."""

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"

INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC})
"""Clients may read them, but neither create nor, by accident, write them."""

ADMIN_CLIENT_ID = "__admin_client"
"""A client that calls itself so writes internal topics on purpose."""
