"""A whole broker on a simulated machine, whose disk, threads and store can fail."""
