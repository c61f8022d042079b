"""The scikit-learn API."""
