"""Commands that show what files contain: dump, diff, explain, transactions, stats."""
