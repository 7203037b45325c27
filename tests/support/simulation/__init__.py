"""The real engine on virtual time, with faults between any two of its steps: one seed, one run.

The actors are the movers of ``weft.orchestrator`` and ``weft.worker`` over the memory adapters. Every
call of a port is a named step: another actor may run there, and the process may die before it or after
it. ``invariants`` looks at each step's effect. Run it with ``./dev sim``.
"""
