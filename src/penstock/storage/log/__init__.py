"""The log of one partition: append, read, roll, truncate, retention, and loading after a crash."""
