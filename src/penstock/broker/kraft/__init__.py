"""Migration from Kafka brokers in KRaft mode: their metadata log."""
