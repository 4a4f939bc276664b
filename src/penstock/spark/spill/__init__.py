"""Rows stored while they are shed."""
