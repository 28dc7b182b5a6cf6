"""What Milepost does with a Prefect server: deployments, runs, automations, limits, the server itself."""
