"""Transactions (P4): the coordinator of transactional ids as a pure state machine."""
