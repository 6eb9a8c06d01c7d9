"""Faults: processes killed at random points, full disks, jumping clocks; no label is lost. `make bench-faults`."""
