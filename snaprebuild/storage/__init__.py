"""Files and objects: log directories, files that appear whole or not at all, the lock of a broker."""
