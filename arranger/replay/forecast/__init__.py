"""Forecasts: when each waiting job would start if nothing new came, and what came of earlier forecasts."""
