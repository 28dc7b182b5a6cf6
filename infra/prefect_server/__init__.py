"""A Prefect server as it is reached without the package prefect: HTTP, login, own servers."""
