"""Record formats: one `*_format.py` each, listed in `registry.py`."""
