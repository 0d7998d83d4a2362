"""What runs in the measured process: standard library and NumPy only, Python 3.8 and newer.

Nothing here imports the rest of inferlab, because an engine's own environment does not have it.
"""
