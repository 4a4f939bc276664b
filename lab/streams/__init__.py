"""Streams with a timetable, from files, and several queries on the same one."""
