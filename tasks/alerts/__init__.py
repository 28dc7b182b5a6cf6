"""Alerts: what people must hear of, as events that automations act on."""
