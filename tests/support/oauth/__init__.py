"""An identity provider on the loopback interface."""
