"""Frozen values that every other part of Penstock speaks in."""
