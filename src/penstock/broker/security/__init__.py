"""Who a client is and what it may do: sessions, SASL, authorization, quotas."""
