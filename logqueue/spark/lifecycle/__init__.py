"""From events to the lives of jobs: the tables `jobs` and `attempts`.

Owns: the state machine of one job, running it for all, the schemas of every table. Must not know:
where events come from, what reports want.
"""
