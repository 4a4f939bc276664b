"""Deciding what to drop, one technique per file; pure functions of frozen values."""
