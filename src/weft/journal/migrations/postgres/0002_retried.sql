-- How often the nodes of a batch were tried again, without a look at those that were not: they have no entry.
CREATE INDEX nodes_retried ON nodes (execution, attempt) WHERE attempt > 1;
