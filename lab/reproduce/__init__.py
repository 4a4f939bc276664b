"""The papers' figures, computed again by the code that sheds in production."""
