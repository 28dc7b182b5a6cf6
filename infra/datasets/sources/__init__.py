"""Where rows lie: one file per kind of source, each yielding rows with their numbers."""
