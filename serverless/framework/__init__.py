"""What users import, and what calls their code. Needs nothing but Python, and knows nothing of the queue."""
