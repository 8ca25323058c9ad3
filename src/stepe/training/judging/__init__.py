"""Who probes the samples of a network's training: the network itself, or networks that train on other samples.

``folds`` deals the samples and puts together what judges say of those that they never trained on; everybody who makes
out-of-fold views does it there. May import what ``training`` may.
"""
