"""The fold batch by batch, which tests compare the replay with."""
