"""Stage check-drift: the data contract, the drift of the dataset, and the drift of what a model makes of it."""
