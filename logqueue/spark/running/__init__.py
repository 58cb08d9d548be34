"""What a session needs to run: Java, settings, packed code, a doctor.

Owns: all of that. Must not know: any job.
"""
