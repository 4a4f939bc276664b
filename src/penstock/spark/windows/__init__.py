"""User-defined functions over event-time windows, shed by concept."""
