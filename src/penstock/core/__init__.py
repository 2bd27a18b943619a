"""Types that every layer shares: ids, errors with Kafka's codes, the clock port, buffers."""
