"""Authentication, authorization and quotas: decisions without I/O."""
