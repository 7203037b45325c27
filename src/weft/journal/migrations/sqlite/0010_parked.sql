-- A parked node: it has started, no worker holds it, and it is due at a time.
ALTER TABLE nodes ADD COLUMN parked TEXT;
