"""Control loops over Kubernetes objects: what every daemon of the platform is made of."""
