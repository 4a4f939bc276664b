"""Kill every kind of job at random moments and at every write, and see that nothing is lost, doubled or shed otherwise.

``python -m benchmarks.kill --kind windows --kills 5``
"""
