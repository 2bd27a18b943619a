"""The audit log: who logged in, was denied something, or changed the cluster (X3)."""
