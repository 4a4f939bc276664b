"""The demonstration: one bursty stream, plain Spark and Penstock, and a table that tells them apart."""
