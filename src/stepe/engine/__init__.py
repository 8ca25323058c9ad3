"""Engines run the probe and the epoch."""
