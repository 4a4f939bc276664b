"""Acting on Spark: the only package that runs queries."""
