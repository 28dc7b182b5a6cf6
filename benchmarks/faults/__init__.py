"""Faults that benchmarks/fault_campaign.py injects into real evaluations, and the audit of what they left."""
