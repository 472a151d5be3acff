"""The API keeps to its own description: generated requests, good and bad, on several stores."""

from __future__ import annotations
