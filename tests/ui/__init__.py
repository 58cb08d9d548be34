"""The dashboard in a real browser: every page, every flow, hostile data, foreign web pages."""
