"""From the bytes of records to columns; what cannot be read goes to the dead letters."""
