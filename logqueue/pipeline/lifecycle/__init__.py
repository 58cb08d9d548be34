"""The state machine of a job, and the tables that its history makes."""
