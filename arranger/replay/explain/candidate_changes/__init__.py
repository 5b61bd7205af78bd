"""Candidate changes that might give a waiting job nodes. This package only proposes them; `remedies` tries them."""
