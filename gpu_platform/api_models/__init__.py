"""The request and response models of the REST API: the server validates with them, clients read with them."""
