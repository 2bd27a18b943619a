"""What the cluster is made of, and who decides about it: pure machines, no I/O."""
