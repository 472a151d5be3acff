"""``app.alerts``: the rules, channels and maintenance windows of alerts, and what became of them."""
