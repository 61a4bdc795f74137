"""What the projects beside this folder run."""

from stacks.by_hand.declaring import declare

declare()
