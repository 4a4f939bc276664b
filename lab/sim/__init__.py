"""The same governor, controller and policies as on Spark, on a simulated clock."""
