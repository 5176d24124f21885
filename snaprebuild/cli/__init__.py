"""The command line: a thin layer that turns the results of the packages below into text or JSON."""
