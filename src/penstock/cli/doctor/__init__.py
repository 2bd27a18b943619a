"""`penstock doctor`: finds out what is wrong with a connection."""
