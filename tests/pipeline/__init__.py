"""The pipeline on one machine: no Java, no Spark."""
