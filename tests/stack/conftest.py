"""Every test in this folder runs against real brokers; the fixtures are those of tests/conftest.py."""
