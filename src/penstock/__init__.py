"""Load shedding for Spark Structured Streaming."""
