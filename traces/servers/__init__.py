"""Servers of stores on this machine, to try them out and to test with: one kind per file. Each
listens on 127.0.0.1 and keeps its data in a folder that its caller gives; mooncake has further
ports."""
