"""The log on disk, in Kafka's files: segments, indexes, producer state, recovery, compaction."""
