"""Run all benchmarks, one after the other."""

from __future__ import annotations

from benchmarks import async_streams, bare_engines, c_api, startup, sync_overhead

for program in (startup, sync_overhead, c_api, async_streams, bare_engines):
    print(f"\n## {program.__doc__}")
    program.main()
