"""The command line: a thin layer that turns the results of ``snaprebuild.operations`` into text or JSON."""
