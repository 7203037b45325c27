"""Pictures of a graph: pure functions from its shape and a label per node to text."""
