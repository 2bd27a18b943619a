"""Small files beside the logs: checkpoints, leader epochs, and how they are replaced atomically."""
