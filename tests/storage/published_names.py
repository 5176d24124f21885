"""A name in a directory, its temporary name, and another process that holds one."""

NAME = "00000000000000001123.snapshot"
TEMPORARY = "00000000000000001123.snapshot.tmp"
DATA = bytes(range(256)) * 5
LOCKS_AND_WAITS = """
import fcntl, struct, sys
file = open(sys.argv[1], "r+b")
fcntl.fcntl(file, getattr(fcntl, sys.argv[2]), struct.pack("@hhqqi0q", fcntl.F_WRLCK, 0, 0, 0, 0))
print("ready", flush=True)
sys.stdin.read()
"""
