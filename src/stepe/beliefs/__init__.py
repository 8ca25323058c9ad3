"""What is believed of the labels: how many are wrong, how they go wrong, which ones, and what they should be.

A belief is made once, after the last look at the data; everybody reads it and nobody computes it again. Plain numpy, no
torch. May import ``loop``.
"""
