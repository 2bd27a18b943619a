"""The security of connections and requests: sessions, SASL logins, authorization, quotas."""
