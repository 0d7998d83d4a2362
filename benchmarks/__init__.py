"""Programs that print figures as ratios measured side by side, in one run, in fresh processes.

Run all with `make bench`, or one with `python -m benchmarks.sync_overhead`. Stop other work first.
"""
