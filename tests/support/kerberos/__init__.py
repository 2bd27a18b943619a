"""A Kerberos realm for tests."""
