"""The hosts of the group and transaction coordinators: they append, apply and respond."""
