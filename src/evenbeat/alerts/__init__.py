"""Alerts: finds what rules ask for, and announces it once, on the channels of the rule."""
