"""Producer state of a partition: sequences, open transactions, snapshots."""
