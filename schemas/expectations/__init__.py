"""What a dataset promises: rules that hold for every row, built from its own profile."""
