"""Estimators and their aggregation over samples."""
