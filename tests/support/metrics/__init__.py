"""Helpers of tests that scrape metrics."""
