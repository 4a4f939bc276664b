"""Answers from weighted samples, with bounds, and whether they can be relied on."""
