"""The REST API and the dashboard as an ASGI app: ``evenbeat web`` serves it, and other ASGI apps mount it."""

from evenbeat.web.app import WebApp, web_app

__all__ = ["WebApp", "web_app"]
