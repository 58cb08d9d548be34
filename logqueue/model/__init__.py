"""What everything else is said in: the config of topics and routers, bounds, time."""
