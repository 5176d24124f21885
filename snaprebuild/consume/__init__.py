"""The records of partitions as a consumer gets them: which log counts, which offsets, which transactions, and the batches of Arrow."""
