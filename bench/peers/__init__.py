"""weft beside its peers, on the same workloads in the same run: see README.md beside this file."""
