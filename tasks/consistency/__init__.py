"""Stage check-consistency: whether all replicas did the same work in the same way."""
