"""Messages of the metadata log, and of Kafka's other internal topics."""
