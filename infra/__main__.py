"""What Pulumi runs. The program itself is a plain function, so that the Automation API can run it too."""

from infra.program import platform

platform()
