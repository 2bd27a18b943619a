"""What a replica decides: whether it leads, how far a record is replicated, who waits for it."""
