"""Changed grading over the samples of a published run, without generating."""
