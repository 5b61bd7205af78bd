"""What-if: cycles with changed inputs, and their consequences."""
