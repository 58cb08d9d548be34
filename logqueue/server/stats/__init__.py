"""What the server shows of itself while it runs: history of topics, the live feed, attention."""
