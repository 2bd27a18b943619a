"""Commands that administer a cluster, as Kafka's scripts do."""
