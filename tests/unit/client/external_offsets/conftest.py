"""Databases for external offsets."""

from tests.support.spark.databases import database_url, engine, mariadb, postgresql

__all__ = ["database_url", "engine", "mariadb", "postgresql"]
