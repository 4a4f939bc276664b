"""Exact answers afterwards."""
