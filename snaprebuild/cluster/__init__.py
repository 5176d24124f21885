"""The metadata log and what follows from it: images, soundness, verdicts on sources, many brokers."""
