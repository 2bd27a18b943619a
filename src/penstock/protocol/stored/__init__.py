"""Records of Kafka's internal topics, and control records."""
