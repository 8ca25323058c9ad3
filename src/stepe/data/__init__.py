"""Data: what training reads samples from, bundled sets, and planted noise."""
