"""The models that ship with stepe."""
