"""The settings of the broker, its topics, groups and metrics subscriptions, under Kafka's names.

`settings` says what a setting is, `tables` lists them, `broker_config` holds the broker's values,
`topic_config`, `group_config` and `client_metrics_config` those of what the broker serves, and
`properties` reads them from a file.
"""
