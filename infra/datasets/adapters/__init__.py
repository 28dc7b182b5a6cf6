"""What the rows of well-known datasets mean; pure functions from a row to a problem."""
