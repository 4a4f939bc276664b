"""What Penstock is tried with: a simulator, the papers' figures, servers and streams; in the repo, not in the wheel."""
