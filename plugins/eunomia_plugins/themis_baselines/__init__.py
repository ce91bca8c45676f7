"""What Themis is compared with (§6.1) and no other family has: how Optimus and SLAQ value GPUs."""
