"""The controller's host, and how committed metadata reaches the parts of the broker."""
