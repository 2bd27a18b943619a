"""The settings of the broker, its topics, groups and metrics subscriptions, under Kafka's names.

`settings` defines a setting, `tables` lists them, `broker_config` holds the broker's values,
`topic_config`, `group_config` and `client_metrics_config` those of its resources, `properties`
reads them from a file, and `component_config` derives the configuration of each component.
"""
