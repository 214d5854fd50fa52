"""What the engine doubles share: flag tables, a small HTTP, a rate model, failures on demand. Standard library only."""
