"""All logs of a broker in their log directories: creation, deletion, moves, checkpoints."""
