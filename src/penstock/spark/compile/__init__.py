"""A network of operators as one streaming query."""
