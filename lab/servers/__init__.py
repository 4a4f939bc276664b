"""A broker, an HDFS and a cluster on loopback, for tests, benchmarks and examples."""
