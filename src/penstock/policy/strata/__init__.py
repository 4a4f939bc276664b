"""Groups and their quotas: Concept-Driven shedding."""
