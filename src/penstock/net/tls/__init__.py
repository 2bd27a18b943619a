"""TLS settings and key stores, for listeners and clients alike."""
