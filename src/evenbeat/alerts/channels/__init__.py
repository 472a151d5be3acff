"""Channels: how an announcement is sent."""
