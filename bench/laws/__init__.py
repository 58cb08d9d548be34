"""Growth laws of the data pipeline: what a row costs as logs grow, and what the driver holds."""
