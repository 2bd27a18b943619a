"""The server's side of SASL logins: one file per mechanism, and the table in `mechanisms.py`."""
