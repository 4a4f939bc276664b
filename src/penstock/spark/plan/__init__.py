"""Plans: the log, who makes them, and how they reach the running query."""
