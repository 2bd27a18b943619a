"""What Kafka keeps in its own topics and files: keys and values of records, control records."""
