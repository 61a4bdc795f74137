"""What every answer has in common: the envelope, the errors, the frame around a request."""
