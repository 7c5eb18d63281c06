"""Tests of the room that judges by logits."""
