"""The parts that all adapters on Redis share: the connection, the names of the keys, the handshake."""
