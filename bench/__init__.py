"""What weft costs, measured: see README.md beside this file."""
