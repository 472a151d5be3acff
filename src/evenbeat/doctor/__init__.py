"""Checks of a store and its nodes: a module for the checks of each concept."""
