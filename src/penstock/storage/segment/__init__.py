"""One segment of a log, the segments in order, and scanning batches in their files."""
