"""The demonstration: bikes wanted in an hour, judged by what a wrong number costs."""
