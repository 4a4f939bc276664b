"""Weighted answers with bounds, as Spark expressions and as one query of several outputs."""
