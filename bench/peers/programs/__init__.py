"""One program for each peer. It runs in its peer's own environment, and may import no more than that has."""
