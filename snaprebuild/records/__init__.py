"""Records of partitions, read from logs and remote storage without a broker. The modules need pyarrow (extra ``records``)."""
