"""When load must go: learned costs, expected input, the time there is, and how far batches overrun it."""
