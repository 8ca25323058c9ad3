"""Adapters: the same method, ledger and plan inside other people's training."""
