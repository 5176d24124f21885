"""Files and directories of this machine."""
