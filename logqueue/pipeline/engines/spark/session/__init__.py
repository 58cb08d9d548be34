"""Spark sessions: Java, the class archive, code for executors, and the doctor."""
