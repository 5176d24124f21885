"""The metadata log, folded into images and histories."""
