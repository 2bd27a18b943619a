"""The listening side: accepted connections, framing, back-pressure, responses in order."""
