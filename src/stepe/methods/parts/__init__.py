"""The parts that methods are made of: how many samples are dropped, which ones, what they train on instead, and what
inputs are blended with. A part knows the task and the ledger, and no method. May import what ``methods`` may.
"""
