"""Python types at the edge of a call: return values become JSON, and arguments become what is annotated.

``encoding`` turns a returned value into JSON. ``annotations`` resolves the hints of a function, ``shape``
reads a hint into a tree of the types that weft supports, and three modules use that tree: ``decoding`` builds
the value of an argument, ``schema`` writes the JSON Schema of a type, ``fit`` compares two types.
"""
