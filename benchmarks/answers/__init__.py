"""Golds rewritten into answers that are right or wrong by construction, for the campaign of the grader."""
