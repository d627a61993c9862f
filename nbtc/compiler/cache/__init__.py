"""What code on disk is found by."""
