"""What marks rows as kept or shed, counts them and weighs the survivors."""
