"""Record batches, their headers and control records."""
