"""Log compaction: choosing dirty logs, cleaning batches, swapping segments."""
